;; The callbacks that the filter has instead of the SDK's, under the names that the host calls. In Rust they have others, since a
;; module cannot have two functions of one name; build.sh merges this module with the filter's.
(module
  (import "filter" "leapgate_on_http_call_response" (func $http_call_response (param i32 i32 i32 i32 i32)))
  (import "filter" "leapgate_on_grpc_receive" (func $grpc_receive (param i32 i32 i32)))
  (import "filter" "leapgate_on_grpc_close" (func $grpc_close (param i32 i32 i32)))
  (export "proxy_on_http_call_response" (func $http_call_response))
  (export "proxy_on_grpc_receive" (func $grpc_receive))
  (export "proxy_on_grpc_close" (func $grpc_close)))
