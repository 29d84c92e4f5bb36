//! Loss as a function of parameters and tokens, and what a recipe does to it: forms, and their fit to points. A crate of its own because fits are
//! drawn again by the thousand: it is optimised where the harness is not.

mod fit;
mod forms;

pub use fit::{ALPHA_OF_OTHERS, Fitted, Point, law, law_at, law_from, recipe, recipe_from};
pub use forms::{A, ALPHA, B, BETA, Base, E, Form, GAMMA, Law, Place, REFERENCE, Slopes};
