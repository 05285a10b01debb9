//! The floor: the least that a filter can do to hold one window for the whole process, written by
//! hand on the raw ABI. What the real filter costs beyond this is its own.
//!
//! It knows one route, `bench`, and one strict window of 100 buckets over the gauges
//! `floor.tickets` and `floor.admitted`. Per request it calls the host as often as the window
//! needs, and not once more:
//!
//! ```text
//! admitted   get_property(xds.route_name)  get_metric(admitted)  clock_time_get
//!            increment_metric(tickets, 1)  get_metric(tickets)   increment_metric(admitted, 1)
//! refused    get_property(xds.route_name)  get_metric(admitted)  clock_time_get  send_local_response
//! ```
//!
//! `admitted` is read before the clock: read after, a late value could be filed under an early
//! bucket, and the window would forget what was admitted in between. The plugin's configuration is
//! the limit and the interval in milliseconds: two numbers with a space between.
#![no_std]
#![cfg_attr(not(target_arch = "wasm32"), allow(dead_code, unused_imports))]

#[cfg(target_arch = "wasm32")]
mod filter;
