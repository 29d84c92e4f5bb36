//! Lines as docs/files.md shows them: read, written again byte for byte, and refused with one kind of message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test's way to fail

use contract::device::{DeviceId, DeviceKind, Devices};
use contract::exchange::ExchangeLine;
use contract::json::{self, Document, LONGEST_LINE, Line};
use contract::measurements::{DeviceTestLine, KernelTimeLine, RotationIdentityLine, StepTimeLine};
use contract::metrics::MetricsLine;
use contract::outcome::{Done, Failed, Status};
use contract::timing::TimingLine;

fn comes_back<T: Line + serde::Serialize>(lines: &[&str]) {
    for line in lines {
        let read = T::from_line(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(serde_json::to_string(&read).unwrap(), *line);
    }
}

#[test]
fn lines_are_written_as_they_were_read() {
    comes_back::<MetricsLine>(&[
        r#"{"schema":"mxfp4-metrics/1","kind":"header","profile":"cpu","arm":"mxfp4-fdw-h16","seed":1,"parameters":852864,"tokens_per_step":1024}"#,
        r#"{"kind":"train","step":5,"tokens":5120,"loss":6.81,"grad_norm":1.93,"learning_rate":0.0005}"#,
        r#"{"kind":"eval","step":6,"tokens":6144,"loss":6.7}"#,
        r#"{"kind":"reading","step":6,"tokens":6144,"recipe":"bf16","loss":null}"#,
        r#"{"kind":"quantisation","step":60,"layer":0,"linear":"qkv","pass":"wgrad","operand":"output_gradient","format":"e2m1","relative_error":0.11,"bias":-0.0003,"magnitude_bias":-0.004,"cosine":null,"amax_over_rms_before":4.1,"amax_over_rms_after":2.9,"outlier_amax_over_rms_before":5.3,"outlier_amax_over_rms_after":3.1}"#,
        r#"{"kind":"diverged","step":97,"reason":"training loss is not finite"}"#,
    ]);
    comes_back::<TimingLine>(&[
        r#"{"schema":"mxfp4-timing/1","kind":"session","device":"cpu","threads":1,"instruction_set":"avx512","cpu":"a CPU","resumed_from_step":0}"#,
        r#"{"schema":"mxfp4-timing/1","kind":"session","device":"cuda","threads":1,"instruction_set":"sm_90a","cpu":"a CPU","gpu":"NVIDIA H200","libraries":["CUDA driver 12.8"],"mxfp4":"emulated","least_memory":true,"interpreted":true,"resumed_from_step":4}"#,
        r#"{"kind":"step","step":1,"seconds":0.051}"#,
        r#"{"kind":"eval","step":6,"seconds":0.09}"#,
    ]);
    comes_back::<ExchangeLine>(&[
        r#"{"schema":"mxfp4-exchange/1","kind":"session","ranks":2,"transport":"NCCL 2.28.9","resumed_from_step":0}"#,
        r#"{"kind":"step","step":1,"rank":3,"seconds":0.5,"gradients":0.03,"norm":0.002,"parameters":0.01}"#,
    ]);
    comes_back::<KernelTimeLine>(&[
        r#"{"schema":"mxfp4-kernel-time/1","kind":"device","device":"cuda:0","name":"NVIDIA H200","architecture":"sm_90a","libraries":["CUDA driver 13.0"],"mxfp4":"emulated","fp8":true,"interpreted":false}"#,
        r#"{"schema":"mxfp4-kernel-time/1","kind":"kernel_time","variant":"mxfp4-h16","linear":"gate_up","pass":"fprop","m":1024,"n":768,"k":128,"repeat":1,"seconds":0.0012}"#,
        r#"{"schema":"mxfp4-kernel-time/1","kind":"product_time","variant":"fp8","linear":"down","pass":"wgrad","m":1,"n":2,"k":3,"repeat":1,"seconds":null,"interpreted":true}"#,
        r#"{"schema":"mxfp4-kernel-time/1","kind":"prepare_time","variant":"h16-sr","linear":"qkv","orientation":"both","rows":1,"columns":2,"bytes":3,"repeat":1,"seconds":0.5}"#,
        r#"{"schema":"mxfp4-kernel-time/1","kind":"copy_time","variant":"copy","linear":"all","orientation":"both","rows":1,"columns":2,"bytes":4,"repeat":1,"seconds":0.5}"#,
        r#"{"schema":"mxfp4-kernel-time/1","kind":"peak_time","variant":"bf16","m":8192,"n":8192,"k":8192,"repeat":1,"seconds":0.5}"#,
        r#"{"schema":"mxfp4-kernel-time/1","kind":"not_run","variant":"mxfp4-hipblaslt","linear":"qkv","pass":"fprop","m":1,"n":2,"k":3,"reason":"too old"}"#,
    ]);
    comes_back::<StepTimeLine>(&[
        r#"{"schema":"mxfp4-step-time/1","kind":"step_time","arm":"fp8","repeat":1,"seconds":0.05,"forward_backward_seconds":0.047}"#,
        r#"{"schema":"mxfp4-step-time/1","kind":"step_time","arm":"fp8","repeat":1,"tokens":64,"seconds":0.05,"forward_backward_seconds":0.047}"#,
        r#"{"schema":"mxfp4-step-time/1","kind":"step_kernel","arm":"fp8","repeat":1,"kernel":"gemm-float","calls":72,"work":125627793408,"seconds":1.2}"#,
        r#"{"schema":"mxfp4-step-time/1","kind":"step_time","arm":"fp8","repeat":1,"tokens":64,"ranks":2,"seconds":0.05,"forward_backward_seconds":0.047}"#,
        r#"{"schema":"mxfp4-step-time/1","kind":"step_exchange","arm":"fp8","repeat":1,"rank":1,"gradients":0.002,"norm":0.001,"parameters":0.003}"#,
        r#"{"schema":"mxfp4-step-time/1","kind":"step_memory","bytes":5368709120}"#,
    ]);
    comes_back::<RotationIdentityLine>(&[
        r#"{"schema":"mxfp4-rotation-identity/1","kind":"rotation_identity","linear":"qkv","pass":"fprop","rotation":"h16","max_relative_error":1.2e-15,"bound":4e-14}"#,
    ]);
    comes_back::<DeviceTestLine>(&[
        r#"{"schema":"mxfp4-device-test/1","kind":"device","device":"cuda","name":"a GPU","architecture":"sm_90a","interpreted":false,"libraries":[],"seed":1}"#,
        r#"{"schema":"mxfp4-device-test/1","kind":"check","group":"operand","name":"n","detail":"d","elements":4,"difference":0.0,"bound":0.0,"passed":true}"#,
        r#"{"schema":"mxfp4-device-test/1","kind":"summary","checks":1,"failed":0}"#,
    ]);
}

#[test]
fn files_are_written_as_they_were_read() {
    let done = r#"{"schema":"mxfp4-done/1","status":"diverged","steps":360,"tokens":368640,"final_train_loss":3.1,"final_validation_loss":null,"metrics_sha256":"a","model_sha256":null,"run_sha256":"b"}"#;
    let read = Done::from_json("done.json", done).unwrap();
    assert_eq!((read.status, read.to_json().unwrap().as_str()), (Status::Diverged, done));
    let failed = "{\n  \"schema\": \"mxfp4-failed/1\",\n  \"error\": \"no room\"\n}";
    assert_eq!(Failed::from_json("failed.json", failed).unwrap().to_json_pretty().unwrap(), failed);
    let devices = r#"{"schema":"mxfp4-devices/1","gpus":[{"device":"hip:1","name":null,"architecture":null,"memory_bytes":null,"fp8":null,"mxfp4":null,"interpreted":false,"libraries":[],"problem":"gone"}],"problem":null}"#;
    assert_eq!(Devices::from_json("devices", devices).unwrap().to_json().unwrap(), devices);
}

#[test]
fn what_is_no_line_of_the_schema_is_told_with_its_place() {
    let first = r#"{"schema":"mxfp4-metrics/1","kind":"header","profile":"p","arm":"a","seed":1,"parameters":1,"tokens_per_step":1}"#;
    let wrong = |line: &str| {
        let text = format!("{first}\n\n{line}\n");
        let error = json::read::<MetricsLine>("metrics.jsonl", &text).find_map(Result::err).unwrap_or_else(|| panic!("accepted: {line}"));
        assert_eq!((error.file.as_str(), error.line), ("metrics.jsonl", 3), "{line}");
        error.what
    };
    for (line, what) in [
        (r#"{"kind":"#, "is not a JSON object"),
        (r#"[1]"#, "is not a JSON object"),
        (
            r#"{"kind":"evals","step":1}"#,
            "kind: unknown variant `evals`, expected one of header, train, eval, reading, quantisation, diverged",
        ),
        (r#"{"step":1}"#, "kind: unknown variant ``"),
        (r#"{"schema":"mxfp4-metrics/2","kind":"later"}"#, "schema `mxfp4-metrics/2` is not `mxfp4-metrics/1`"),
        (r#"{"schema":"mxfp4-metrics/2","kind":"header","more":1}"#, "schema `mxfp4-metrics/2` is not `mxfp4-metrics/1`"),
        (r#"{"kind":"header"}"#, "schema is missing"),
        (r#"{"kind":"eval","step":1,"tokens":1}"#, "eval: missing field `loss`"),
        (r#"{"kind":"eval","step":1,"tokens":1,"loss":1.0,"more":1}"#, "eval: unknown field `more`"),
        (r#"{"schema":"mxfp4-metrics/1","kind":"eval","step":1,"tokens":1,"loss":1.0}"#, "eval: unknown field `schema`"),
        (r#"{"kind":"eval","step":-1,"tokens":1,"loss":1.0}"#, "eval: invalid value"),
    ] {
        let found = wrong(line);
        assert!(found.contains(what), "{line}: {found}");
    }
    assert!(wrong(&format!(r#"{{"kind":"{}"}}"#, "x".repeat(LONGEST_LINE))).contains("more than 1048576"));
    let other = Done::from_json("done.json", r#"{"schema":"mxfp4-done/2","new":1}"#).unwrap_err();
    assert_eq!(other.to_string(), "done.json, line 1: schema `mxfp4-done/2` is not `mxfp4-done/1`");
}

#[test]
fn devices_have_one_spelling() {
    for (text, id) in [("cpu", DeviceId::Cpu), ("cuda:0", DeviceId::Cuda(0)), ("hip:12", DeviceId::Hip(12))] {
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(id.to_string(), text);
        assert_eq!(DeviceId::new(id.kind(), id.ordinal().unwrap_or_default()), id);
    }
    assert_eq!("hip".parse(), Ok(DeviceId::Hip(0)));
    for text in ["", "gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:+1", "cuda:1:2", "cuda: 1", "CUDA:1", "cuda:99999999999999999999"] {
        let refused = text.parse::<DeviceId>();
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(&format!("'{text}' is no device"))), "{refused:?}");
    }
    assert_eq!(DeviceKind::ALL.map(DeviceKind::word), ["cpu", "cuda", "hip"]);
}
