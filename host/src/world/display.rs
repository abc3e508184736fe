//! `display`: numbers and addresses as text.

use super::bindings::kernelscript::host::display::Host;
use super::state::State;
use crate::display;

impl Host for State {
    fn ipv4(&mut self, address: u32) -> wasmtime::Result<String> {
        Ok(display::ipv4(address))
    }

    fn ipv6(&mut self, address: Vec<u8>) -> wasmtime::Result<String> {
        Ok(display::ipv6(&address))
    }

    fn mac(&mut self, address: Vec<u8>) -> wasmtime::Result<String> {
        Ok(display::mac(&address))
    }

    fn system_call(&mut self, number: i64) -> wasmtime::Result<String> {
        Ok(display::system_call(number))
    }

    fn errno(&mut self, number: i64) -> wasmtime::Result<String> {
        Ok(display::errno(number))
    }

    fn signal(&mut self, number: i64) -> wasmtime::Result<String> {
        Ok(display::signal(number))
    }

    fn capability(&mut self, number: i64) -> wasmtime::Result<String> {
        Ok(display::capability(number))
    }

    fn enumerator(&mut self, of: String, number: i64) -> wasmtime::Result<String> {
        Ok(self.enums.name(&of, number))
    }

    fn time_of_day(&mut self, format: Vec<u8>, time: u64) -> wasmtime::Result<String> {
        Ok(self.zone.time_of_day(&format, time))
    }

    fn bytes(&mut self, number: u64) -> wasmtime::Result<String> {
        Ok(display::bytes(number))
    }

    fn duration(&mut self, time: u64) -> wasmtime::Result<String> {
        Ok(display::duration(time))
    }
}
