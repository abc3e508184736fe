mod probe {
    ks_guest::kernel!("../sdk/probe.ks");
}

fn misspelt() -> ks_guest::Result<()> {
    probe::fault()?.insert(&1, &probe::Pair { low: 1, high: 2 })
}

fn of_another_type() -> ks_guest::Result<()> {
    probe::faults()?.insert(&1, &probe::Pair { low: 1, high: 2 })
}

fn another_member(fault: probe::Fault) -> u64 {
    fault.count
}

fn main() {
    let _ = (misspelt, of_another_type, another_member);
}
