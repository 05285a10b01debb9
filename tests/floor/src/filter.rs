//! Callbacks, host calls, and the window between them.

use core::cell::UnsafeCell;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_buffer_bytes(
        kind: u32,
        start: usize,
        length: usize,
        data: *mut *const u8,
        size: *mut usize,
    ) -> u32;
    fn proxy_get_property(
        path: *const u8,
        length: usize,
        data: *mut *const u8,
        size: *mut usize,
    ) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, length: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    fn proxy_get_metric(id: u32, value: *mut u64) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_length: usize,
        body: *const u8,
        body_length: usize,
        headers: *const u8,
        headers_length: usize,
        grpc_status: i32,
    ) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn clock_time_get(clock: u32, precision: u64, now: *mut u64) -> u32;
}

const ROUTE: &[u8] = b"bench";
const BUCKETS: u64 = 100;
/// Slots of the ring: a power of two, more than the window and the bucket that is leaving.
const SLOTS: usize = 128;

const OK: u32 = 0;
const CONTINUE: u32 = 0;
const PAUSE: u32 = 1;
const GAUGE: u32 = 1;
const MONOTONIC: u32 = 1;
const PLUGIN_CONFIGURATION: u32 = 7;

struct Window {
    limit: u64,
    bucket_ns: u64,
    tickets: u32,
    admitted: u32,
    /// The newest bucket, counted from the clock's zero.
    newest: u64,
    /// What `admitted` was when last observed.
    last: u64,
    /// What `admitted` was when each bucket began.
    at_start: [u64; SLOTS],
}

/// A VM runs one callback at a time, on one thread.
struct OneThread<T>(UnsafeCell<T>);

// SAFETY: a wasm module without threads has no second one that could look.
unsafe impl<T> Sync for OneThread<T> {}

static WINDOW: OneThread<Window> = OneThread(UnsafeCell::new(Window {
    limit: 0,
    bucket_ns: 1,
    tickets: 0,
    admitted: 0,
    newest: 0,
    last: 0,
    at_start: [0; SLOTS],
}));

/// Where the host puts what it returns: one value at a time is enough.
static BUFFER: OneThread<[u8; 256]> = OneThread(UnsafeCell::new([0; 256]));

fn metric(id: u32) -> u64 {
    let mut value = 0;
    // SAFETY: the host writes eight bytes to where it is told to.
    unsafe { proxy_get_metric(id, &mut value) };
    value
}

fn increment(id: u32, by: i64) {
    // SAFETY: no memory is involved.
    unsafe { proxy_increment_metric(id, by) };
}

fn now() -> u64 {
    let mut now = 0;
    // SAFETY: the host writes eight bytes to where it is told to.
    unsafe { clock_time_get(MONOTONIC, 0, &mut now) };
    now
}

fn define(name: &[u8]) -> u32 {
    let mut id = 0;
    // SAFETY: `name` lives, and the host writes four bytes to where it is told to.
    unsafe { proxy_define_metric(GAUGE, name.as_ptr(), name.len(), &mut id) };
    id
}

/// The route's name, empty where it has none.
fn route() -> &'static [u8] {
    const PATH: &[u8] = b"xds\0route_name";
    let (mut data, mut size) = (core::ptr::null(), 0);
    // SAFETY: the host puts `size` bytes where `proxy_on_memory_allocate` said, which is never
    // freed.
    unsafe {
        match proxy_get_property(PATH.as_ptr(), PATH.len(), &mut data, &mut size) {
            OK if !data.is_null() => core::slice::from_raw_parts(data, size),
            _ => &[],
        }
    }
}

impl Window {
    fn slot(&mut self, bucket: u64) -> &mut u64 {
        &mut self.at_start[bucket as usize % SLOTS]
    }

    /// Observes, then reads the clock, and brings the ring up to it.
    fn observe(&mut self) {
        let seen = metric(self.admitted);
        let now = now() / self.bucket_ns;
        if now > self.newest {
            let gap = (now - self.newest).min(SLOTS as u64);
            let last = self.last;
            for bucket in now + 1 - gap..=now {
                *self.slot(bucket) = last;
            }
            self.newest = now;
        }
        self.last = seen;
    }

    fn admit(&mut self) -> bool {
        self.observe();
        let base = *self.slot(self.newest.wrapping_sub(BUCKETS));
        if self.last.wrapping_sub(base) >= self.limit {
            return false;
        }
        increment(self.tickets, 1);
        if metric(self.tickets).wrapping_sub(base) > self.limit {
            increment(self.tickets, -1);
            return false;
        }
        increment(self.admitted, 1);
        self.last = self.last.wrapping_add(1);
        true
    }
}

fn window() -> &'static mut Window {
    // SAFETY: each callback takes it once and ends before the next begins.
    unsafe { &mut *WINDOW.0.get() }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    // Configurations and route names of the benchmark are short; what is longer gets no memory.
    if size > 256 {
        core::ptr::null_mut()
    } else {
        BUFFER.0.get().cast()
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(_context: u32, _root: u32) {}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_vm_start(_context: u32, _size: usize) -> u32 {
    1
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(_context: u32, _size: usize) -> u32 {
    let window = window();
    let (mut data, mut size) = (core::ptr::null(), 0);
    // SAFETY: as in `route`.
    let digits = unsafe {
        proxy_get_buffer_bytes(PLUGIN_CONFIGURATION, 0, 256, &mut data, &mut size);
        if data.is_null() {
            &[]
        } else {
            core::slice::from_raw_parts(data, size)
        }
    };
    let mut numbers = digits.split(|byte| *byte == b' ').map(|digits| {
        digits.iter().fold(0, |sum: u64, digit| {
            sum.wrapping_mul(10)
                .wrapping_add(digit.wrapping_sub(b'0').into())
        })
    });
    window.limit = numbers.next().unwrap_or(0);
    let bucket_ms = (numbers.next().unwrap_or(0) / BUCKETS).max(1);
    window.bucket_ns = bucket_ms * 1_000_000;
    window.tickets = define(b"floor.tickets");
    window.admitted = define(b"floor.admitted");
    window.last = metric(window.admitted);
    window.newest = now() / window.bucket_ns;
    window.at_start = [window.last; SLOTS];
    // As often as the filter ticks. SAFETY: no memory is involved.
    unsafe { proxy_set_tick_period_milliseconds(bucket_ms.clamp(10, 250) as u32) };
    1
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(_context: u32) {
    window().observe();
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(_context: u32, _count: usize, _end: u32) -> u32 {
    const DETAILS: &[u8] = b"leapgate{rule=bench}";
    const BODY: &[u8] = b"too many requests";
    /// Four headers, as the filter sends them by default: count, sizes, and each text with a NUL
    /// behind it.
    const HEADERS: &[u8] = b"\x04\0\0\0\
        \x0d\0\0\0\x08\0\0\0\x0b\0\0\0\x01\0\0\0\x10\0\0\0\x11\0\0\0\x09\0\0\0\x11\0\0\0\
        cache-control\0no-store\0\
        retry-after\x001\0\
        ratelimit-policy\0\"bench\";q=001;w=1\0\
        ratelimit\0\"bench\";r=000;t=1\0";

    if route() != ROUTE || window().admit() {
        return CONTINUE;
    }
    // SAFETY: the host reads what lives as long as the module.
    unsafe {
        proxy_send_local_response(
            429,
            DETAILS.as_ptr(),
            DETAILS.len(),
            BODY.as_ptr(),
            BODY.len(),
            HEADERS.as_ptr(),
            HEADERS.len(),
            8,
        );
    }
    PAUSE
}

#[cfg(feature = "response_headers")]
#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(_context: u32, _count: usize, _end: u32) -> u32 {
    CONTINUE
}

#[cfg(feature = "log")]
#[unsafe(no_mangle)]
extern "C" fn proxy_on_log(_context: u32) {}

#[cfg(feature = "done")]
#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(_context: u32) -> u32 {
    1
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(_context: u32) {}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
