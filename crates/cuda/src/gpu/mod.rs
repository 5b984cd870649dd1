//! A device by NVIDIA's libraries, through the calls that cudarc declares.
//!
//! What happens without the libraries is tested everywhere; what it computes is held against the processor's kernels where
//! there is a device (`QUADRILLE_TEST_DEVICE=cuda`).

mod cache;
mod compile;
mod facts;
mod graphs;
pub(crate) mod libraries;
mod modules;
mod packed;
mod products;
mod reach;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, RwLock};

use cudarc::driver::result::{DriverError, ctx, device, event, primary_ctx, stream};
use cudarc::driver::{result, sys};

use crate::array::Format;
use crate::driver::{Address, Driver, Event, Facts, Fault, Launch, Place, Product, Stream, THREADS};
use crate::sources::entry_point;
pub use compile::{Compiled, compile};
use libraries::DRIVER;
use packed::Packed;
use products::{Products, WORKSPACE};

/// Bytes that a block may share without being allowed to.
const UNASKED_SHARED: u32 = 48 << 10;

/// A kernel's handle, by name and format.
type Functions = HashMap<(&'static str, Format), usize>;

/// An NVIDIA device.
pub struct Gpu {
    number: usize,
    device: sys::CUdevice,
    context: sys::CUcontext,
    /// As the compiler names it: `sm_90`.
    architecture: String,
    products: Products,
    /// Files of kernels that are loaded.
    modules: Mutex<HashMap<(&'static str, Format), usize>>,
    functions: Mutex<Functions>,
    /// Workspaces of products, by stream.
    workspaces: Mutex<HashMap<Stream, Address>>,
    /// Other devices that the process has opened, and whether kernels here reach their memory.
    others: RwLock<HashMap<usize, bool>>,
}

// SAFETY: a context may be used by any thread that has made it current, which every call does first.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

fn fault(error: DriverError, of: &str) -> Fault {
    Fault { library: DRIVER.name, code: error.0 as i64, text: format!("{error:?}, {of}") }
}

/// Adds what was asked of the driver to its answer.
trait Asked<T> {
    fn asked(self, of: &str) -> Result<T, Fault>;
}

impl<T> Asked<T> for Result<T, DriverError> {
    fn asked(self, of: &str) -> Result<T, Fault> {
        self.map_err(|error| fault(error, of))
    }
}

impl Gpu {
    /// How many devices there are; none is a fault.
    pub fn count() -> Result<usize, Fault> {
        DRIVER.open()?;
        result::init().asked("starting")?;
        match device::get_count().asked("counting devices")? {
            0 => Err(Fault { library: DRIVER.name, code: -1, text: "there is no device".into() }),
            count => Ok(count as usize),
        }
    }

    /// The device of a number, from 0 on.
    pub fn open(number: usize) -> Result<Self, Fault> {
        DRIVER.open()?;
        result::init().asked("starting")?;
        let device = device::get(number as i32).asked(&format!("opening device {number}"))?;
        // SAFETY: the device is the driver's; its context is kept until the end.
        let (context, capability) = unsafe {
            let context = primary_ctx::retain(device).asked("making a context")?;
            ctx::set_current(context).asked("using the context")?;
            let of = |attribute| device::get_attribute(device, attribute).asked("asking for its capability");
            use sys::CUdevice_attribute_enum as Attribute;
            let major = of(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
            (context, (major, of(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
        };
        if capability < (8, 0) {
            let (major, minor) = capability;
            let text = format!("device {number} has compute capability {major}.{minor}; kernels need 8.0 or newer");
            return Err(Fault { library: DRIVER.name, code: -1, text });
        }
        Ok(Self {
            number,
            device,
            context,
            architecture: format!("sm_{}{}", capability.0, capability.1),
            products: Products::open()?,
            modules: Mutex::default(),
            functions: Mutex::default(),
            workspaces: Mutex::default(),
            others: RwLock::default(),
        })
    }

    /// Makes the calling thread use the device.
    fn enter(&self) -> Result<(), Fault> {
        // SAFETY: the context lives as long as the device is open.
        unsafe { ctx::set_current(self.context) }.asked("using the context")
    }

    /// The workspace of a stream's products.
    fn workspace(&self, stream: Stream) -> Result<Address, Fault> {
        let mut workspaces = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(workspace) = workspaces.get(&stream) {
            return Ok(*workspace);
        }
        let workspace = self.allocate(WORKSPACE)?;
        workspaces.insert(stream, workspace);
        Ok(workspace)
    }
}

fn handle(of: Stream) -> sys::CUstream {
    of.0 as sys::CUstream
}

fn mark(of: Event) -> sys::CUevent {
    of.0 as sys::CUevent
}

impl Driver for Gpu {
    fn device(&self) -> &dyn Facts {
        self
    }

    fn allocate(&self, bytes: usize) -> Result<Address, Fault> {
        self.enter()?;
        // SAFETY: whoever gets the address writes before reading. The driver refuses nothing at all.
        let at = unsafe { result::malloc_sync(bytes.max(1)) }.asked(&format!("allocating {bytes} bytes"))?;
        Ok(Address(at))
    }

    unsafe fn free(&self, at: Address) -> Result<(), Fault> {
        self.enter()?;
        // SAFETY: the caller's promise.
        unsafe { result::free_sync(at.0) }.asked(&format!("freeing {:#x}", at.0))
    }

    fn reaches(&self, at: Address) -> Result<bool, Fault> {
        self.reaches_memory(at)
    }

    fn stream(&self, urgent: bool) -> Result<Stream, Fault> {
        self.enter()?;
        let (least, greatest) = stream::get_priority_range().asked("asking for priorities")?;
        let priority = if urgent { greatest } else { least };
        let made = stream::create_with_priority(stream::StreamKind::NonBlocking, priority);
        Ok(Stream(made.asked("making a stream")? as u64))
    }

    fn close(&self, stream: Stream) {
        let workspace = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner).remove(&stream);
        if self.enter().is_err() {
            return;
        }
        // SAFETY: the stream is used no more. That it cannot be closed helps nobody.
        unsafe {
            workspace.into_iter().for_each(|at| drop(self.free(at)));
            let _ = stream::destroy(handle(stream));
        }
    }

    fn event(&self) -> Result<Event, Fault> {
        self.enter()?;
        let made = event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        Ok(Event(made.asked("making an event")? as u64))
    }

    fn forget(&self, event: Event) {
        if self.enter().is_ok() {
            // SAFETY: the event is used no more. That it cannot be destroyed helps nobody.
            let _ = unsafe { event::destroy(mark(event)) };
        }
    }

    fn record(&self, event: Event, on: Stream) -> Result<(), Fault> {
        self.enter()?;
        // SAFETY: both are the driver's, and live until the end.
        unsafe { event::record(mark(event), handle(on)) }.asked("recording an event")
    }

    fn wait(&self, on: Stream, event: Event) -> Result<(), Fault> {
        self.enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: as above.
        unsafe { stream::wait_event(handle(on), mark(event), flags) }.asked("waiting for an event")
    }

    fn query(&self, event: Event) -> Result<bool, Fault> {
        self.enter()?;
        // SAFETY: as above.
        match unsafe { event::query(mark(event)) } {
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            answer => answer.asked("at or before an event").map(|()| true),
        }
    }

    fn await_event(&self, event: Event) -> Result<(), Fault> {
        self.enter()?;
        // SAFETY: as above.
        unsafe { event::synchronize(mark(event)) }.asked("at or before an event")
    }

    fn synchronize(&self, stream: Stream) -> Result<(), Fault> {
        self.enter()?;
        // SAFETY: as above.
        unsafe { stream::synchronize(handle(stream)) }.asked("at or before the end of a stream")
    }

    fn pin(&self, bytes: usize) -> Result<*mut u8, Fault> {
        self.enter()?;
        // SAFETY: whoever gets the memory writes before reading.
        let at = unsafe { result::malloc_host(bytes.max(1), 0) };
        Ok(at.asked(&format!("pinning {bytes} bytes of the host's memory"))?.cast())
    }

    unsafe fn unpin(&self, at: *mut u8) -> Result<(), Fault> {
        self.enter()?;
        // SAFETY: the caller's promise.
        unsafe { result::free_host(at.cast()) }.asked("giving pinned memory back")
    }

    unsafe fn copy(&self, on: Stream, from: Place, to: Place, bytes: usize) -> Result<(), Fault> {
        self.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        let address = |place| match place {
            Place::Host(at) => at as u64,
            Place::HostMut(at) => at as u64,
            Place::Device(at) => at.0,
        };
        // SAFETY: the caller's promise; addresses of host and device are apart, so that the driver knows which is which.
        let copied = unsafe { sys::cuMemcpyAsync(address(to), address(from), bytes, handle(on)) };
        copied.result().asked(&format!("copying {bytes} bytes"))
    }

    unsafe fn clear(&self, on: Stream, at: Address, bytes: usize) -> Result<(), Fault> {
        self.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { result::memset_d8_async(at.0, 0, bytes, handle(on)) }.asked(&format!("clearing {bytes} bytes"))
    }

    unsafe fn launch(&self, on: Stream, launch: &Launch<'_>) -> Result<(), Fault> {
        self.enter()?;
        let function = self.function(launch.kernel, launch.format)?;
        if launch.shared > UNASKED_SHARED {
            use sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as SHARED;
            // SAFETY: the function is loaded.
            let allowed = unsafe { sys::cuFuncSetAttribute(function, SHARED, launch.shared as i32) };
            allowed.result().asked(&format!("sharing {} bytes in {}", launch.shared, launch.kernel))?;
        }
        let mut packed = Packed::new(launch.words);
        let blocks = launch.blocks.max(1);
        let none = std::ptr::null_mut();
        // SAFETY: the caller's promise of the words, which the call copies.
        let launched = unsafe {
            let stream = handle(on);
            let packed = packed.list().as_mut_ptr();
            sys::cuLaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, launch.shared, stream, none, packed)
        };
        launched.result().asked(&format!("launching {}", entry_point(launch.kernel, launch.format)))
    }

    unsafe fn product(&self, on: Stream, product: &Product) -> Result<(), Fault> {
        self.enter()?;
        product.check();
        if product.c.len == 0 {
            return Ok(());
        }
        if product.shape.k == 0 {
            if product.accumulate {
                return Ok(());
            }
            // SAFETY: C is there, as the caller promises.
            return unsafe { self.clear(on, product.c.at, product.c.bytes()) };
        }
        let workspace = self.workspace(on)?;
        // SAFETY: the caller's promise; the workspace is the stream's.
        unsafe { self.products.run(product, workspace, handle(on).cast()) }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: the context was retained once, by `open`.
        let _ = unsafe { primary_ctx::release(self.device) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a driver the error says what was searched and where; where there is one, memory can be had.
    #[test]
    fn a_device_opens_or_says_what_is_missing() {
        match Gpu::open(0) {
            Ok(gpu) => assert!(gpu.memory().unwrap().total > 0),
            Err(fault) => {
                let text = fault.to_string();
                let searched = text.contains("not found: searched libcuda.so");
                assert!(searched || fault.code > 0, "{text}");
            }
        }
    }
}
