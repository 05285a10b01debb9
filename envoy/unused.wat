;; Host calls that the filter never makes. The SDK names them in the tables of its traits, so that the linker imports them;
;; build.sh binds them to these instead, and binaryen then drops what stood behind them. A module that cannot make a call
;; needs no permission for it.
(module
  (func (export "proxy_close_stream") (param i32) (result i32) unreachable)
  (func (export "proxy_dequeue_shared_queue") (param i32 i32 i32) (result i32) unreachable)
  (func (export "proxy_done") (result i32) unreachable)
  (func (export "proxy_get_current_time_nanoseconds") (param i32) (result i32) unreachable)
  (func (export "proxy_get_header_map_pairs") (param i32 i32 i32) (result i32) unreachable)
  (func (export "proxy_get_status") (param i32 i32 i32) (result i32) unreachable)
  (func (export "proxy_grpc_cancel") (param i32) (result i32) unreachable)
  (func (export "proxy_grpc_close") (param i32) (result i32) unreachable)
  (func (export "proxy_register_shared_queue") (param i32 i32 i32) (result i32) unreachable)
  (func (export "proxy_remove_header_map_value") (param i32 i32 i32) (result i32) unreachable)
  (func (export "proxy_set_header_map_pairs") (param i32 i32 i32) (result i32) unreachable)
  (func (export "proxy_set_property") (param i32 i32 i32 i32) (result i32) unreachable))
