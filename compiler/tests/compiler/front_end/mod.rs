//! The front end as a whole: the rows of the conformance table that tokens and syntax decide, recovery after
//! errors, and properties of every text.

mod broken;
mod folding;
mod properties;
mod recovery;
mod rows;
mod strict;
mod style;
mod support;
mod trees;
