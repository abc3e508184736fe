ks_guest::kernel!("script_error.ks");

fn main() {}
