//! The front end as a whole: the rows of the language's checklist that tokens and syntax decide, recovery after errors,
//! and properties that hold for every text.

mod broken;
mod folding;
mod properties;
mod recovery;
mod rows;
mod strict;
mod style;
mod support;
mod trees;
