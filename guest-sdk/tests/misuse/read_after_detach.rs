use ks_guest::{Attachment, Member, Result};

fn attachment(faults: Attachment) -> Result<u64> {
    faults.detach();
    Ok(faults.read()?.raw)
}

fn member(faults: Member<'_>) -> Result<u64> {
    faults.detach();
    Ok(faults.read()?.raw)
}

fn main() {
    let _ = (attachment, member);
}
