//! Writes every instruction of a code object as text.
#![allow(clippy::unwrap_used)]
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let object = gfx950_interpreter::object::CodeObject::parse(&std::fs::read(path).unwrap()).unwrap();
    for kernel in &object.kernels {
        println!("{} {:?} {:?}", kernel.name, kernel.descriptor, kernel.resources);
        for i in &kernel.instructions {
            println!("{:012X} {i}", i.address);
        }
    }
}
