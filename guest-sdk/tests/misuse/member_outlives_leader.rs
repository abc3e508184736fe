use ks_guest::{Event, Group, Member, PerfOptions, Result};

fn member<'group>(event: &Event, options: &PerfOptions) -> Result<Member<'group>> {
    let group = Group::open(event, options)?;
    group.join(event, options)
}

fn dropped(group: Group, event: &Event, options: &PerfOptions) -> Result<u64> {
    let member = group.join(event, options)?;
    group.detach();
    Ok(member.read()?.raw)
}

fn main() {
    let _ = (member, dropped);
}
