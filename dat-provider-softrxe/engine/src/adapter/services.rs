//! Services whose service point is gone: given back once no peer may ask for them any more.

use super::hub::Hub;
use super::state::State;

impl Hub {
    /// Gives back `service`, whose service point is gone, as soon as all its requests have ended.
    pub(crate) fn retire_service(&self, state: &mut State, service: u64) {
        if state.engine.is_asked_for(service) {
            state.connections.lingering.insert(service);
        } else {
            self.release_service(state, service);
        }
    }

    /// Gives back the [retired](Self::retire_service) services whose requests have ended. Called after what ends requests.
    pub(crate) fn release_lingering(&self, state: &mut State) {
        for service in state.engine.take_unasked() {
            // A service point may have it again, or have had it meanwhile.
            if state.connections.lingering.remove(&service) {
                self.retire_service(state, service);
            }
        }
    }

    /// Gives back `service`, at once or as soon as the port's holder reads what this process sends it.
    pub(crate) fn release_service(&self, state: &mut State, service: u64) {
        let State { ports, peers, .. } = state;
        if !ports.release_service(service) {
            peers.back_off(ports, &self.descriptors);
            state.driver.roles.wake_helper(&self.wakers);
        }
    }
}
