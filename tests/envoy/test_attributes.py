"""What earlier filters and route tables tell the filter: claims, metadata, filter state; and the names that resources get from them."""

import json
import subprocess

from harness import EnvoyTest, eventually, route

MINUTE = {"count": 1, "intervalMs": 600_000}

# A key pair, its public half as a JWKS, and a token for each set of claims: made here, so that no key stands in the repository.
MAKE_TOKENS = """
const { generateKeyPairSync, sign } = require('node:crypto');
const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
const token = (claims) => {
  const text = part({ alg: 'ES256', kid: 'k', typ: 'JWT' }) + '.' + part({ iss: 'test', ...claims });
  return text + '.' + sign('sha256', Buffer.from(text), { key: pair.privateKey, dsaEncoding: 'ieee-p1363' }).toString('base64url');
};
const jwks = { keys: [{ ...pair.publicKey.export({ format: 'jwk' }), kid: 'k', alg: 'ES256' }] };
console.log(JSON.stringify([jwks, JSON.parse(process.argv[1]).map(token)]));
"""


def extension(name, kind, **fields):
    return {"name": name, "typed_config": {"@type": f"type.googleapis.com/{kind}", **fields}}


def tokens(*claims):
    made = subprocess.run(["node", "-e", MAKE_TOKENS, json.dumps(claims)], capture_output=True, check=True, text=True)
    jwks, made = json.loads(made.stdout)
    return jwks, [{"authorization": f"Bearer {token}"} for token in made]


def jwt_authn(jwks, payload="jwt_payload"):
    """The filter for tokens of this issuer; a request without one passes."""
    provider = {"issuer": "test", "local_jwks": {"inline_string": json.dumps(jwks)}, "payload_in_metadata": payload}
    return extension(
        "envoy.filters.http.jwt_authn", "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
        providers={"test": provider},
        rules=[{"match": {"prefix": "/"},
                "requires": {"requires_any": {"requirements": [{"provider_name": "test"}, {"allow_missing": {}}]}}}])


def header_to_metadata(**rules):
    """`key=(header, type)`: the header's value as a key in the namespace `plans`."""
    return extension(
        "envoy.filters.http.header_to_metadata", "envoy.extensions.filters.http.header_to_metadata.v3.Config",
        request_rules=[{"header": header, "on_header_present": {"metadata_namespace": "plans", "key": key, "type": kind}}
                       for key, (header, kind) in rules.items()])


def set_filter_state(key, header):
    return extension(
        "envoy.filters.http.set_filter_state", "envoy.extensions.filters.http.set_filter_state.v3.Config",
        on_request_headers=[{"object_key": key, "factory_key": "envoy.string",
                             "format_string": {"text_format_source": {"inline_string": f"%REQ({header})%"}, "omit_empty_values": True}}])


def with_metadata(route, **namespaces):
    return {**route, "metadata": {"filter_metadata": {name.replace("_", "-"): value for name, value in namespaces.items()}}}


class Parts(EnvoyTest):
    def check(self, key, requests, expected, items=(), before=(), routes=None):
        """Requests by one rule of one request for each key, in order: their statuses."""
        document = {"flowRules": [{"resource": "api", **MINUTE, "key": key, "keyItems": list(items)}]}
        envoy = self.envoy(document, routes or [route("api")], workers=1, before=before)
        self.assertEqual([envoy.get("/api", headers)[0] for headers in requests], expected)
        return envoy

    def test_a_claim_of_a_token_is_a_key_as_text_or_as_a_number(self):
        jwks, [alice, again, bob, bare] = tokens(
            {"sub": "alice", "org": {"id": 7}}, {"sub": "alice", "org": {"id": 7}}, {"sub": "bob", "org": {"id": 7}}, {"sub": "alice"})
        key = [{"jwtClaim": "sub"}, {"jwtClaim": ["org", "id"], "type": "number"}]
        self.check(key, [alice, again, bob, bare, {}, {}], [200, 429, 200, 200, 200, 429], before=[jwt_authn(jwks)])

    def test_claims_of_another_payload_and_of_a_name_with_slashes(self):
        jwks, [one, two] = tokens({"https://shop.example/tenant": "one"}, {"https://shop.example/tenant": "two"})
        key = [{"jwtClaim": "https://shop.example/tenant", "payload": "pl"}]
        self.check(key, [one, two, one], [200, 200, 429], before=[jwt_authn(jwks, "pl")])

    def test_a_claim_that_is_a_list_is_missing_and_is_counted_and_logged_once(self):
        jwks, requests = tokens({"team": ["a"]}, {"team": ["b"]}, {"team": {"c": 1}}, {"team": 7}, {})
        envoy = self.check([{"jwtClaim": "team"}], requests, [200] + 4 * [429], before=[jwt_authn(jwks)])
        name = "wasmcustom.leapgate.wrong_type"
        eventually("wrong types are counted", lambda: envoy.stat(name) == 4)
        told = 'leapgate: jwtClaim:team: its value is not a string (for a number, add `"type": "number"`)'
        self.assertEqual(envoy.log().count(told), 1)

    def test_metadata_that_a_header_becomes_is_text_or_a_number_as_the_document_says(self):
        metadata = header_to_metadata(tier=("x-tier", "STRING"), n=("x-n", "NUMBER"))
        tier, number = {"metadata": ["plans", "tier"]}, {"metadata": ["plans", "n"], "type": "number"}
        with self.subTest("eight bytes of text"):
            requests = [{"x-tier": "claude-x"}, {"x-tier": "claude-x"}, {"x-tier": "claude-y"}, {}, {}]
            self.check([tier], requests, [200, 429, 200, 200, 429], before=[metadata])
        with self.subTest("a number"):
            requests = [{"x-n": "42"}, {"x-n": "42.0"}, {"x-n": "42"}, {"x-n": "0.5"}, {"x-n": "-1"}, {"x-n": "many"}, {}]
            items = [{"value": "42", "count": 2}]
            self.check([number], requests, [200, 200, 429, 200, 200, 200, 429], items, before=[metadata])

    def test_typed_metadata_is_text_or_a_number(self):
        usage = {"@type": "type.googleapis.com/envoy.data.ai.v3.TokenUsage", "model": "claude-x", "total_tokens": 412}
        metadata = extension(
            "envoy.filters.http.set_metadata", "envoy.extensions.filters.http.set_metadata.v3.Config",
            metadata=[{"metadata_namespace": "envoy.ai.token_usage", "typed_value": usage}])
        namespace = "envoy.ai.token_usage"
        key = [{"typedMetadata": [namespace, "model"]}, {"typedMetadata": [namespace, "total_tokens"], "type": "number"}]
        items = [{"value": ["claude-x", "412"], "count": 3}]
        self.check(key, [{}] * 4, [200, 200, 200, 429], items, before=[metadata])

    def test_an_object_of_the_filter_state_is_a_key(self):
        requests = [{"x-colour": "blue"}, {"x-colour": "red"}, {"x-colour": "blue"}, {}, {}]
        self.check([{"filterState": "shop.colour"}], requests, [200, 200, 429, 200, 429],
                   before=[set_filter_state("shop.colour", "x-colour")])

    def test_metadata_of_a_route_is_a_key_and_a_null_in_it_harms_no_other_value(self):
        owners = {"owners": ["shop", "search"], "plan": None, "tier": 7, "deep": {"name": "x", "none": None}}
        api = with_metadata(route("api"), leapgate=owners)
        for key, value in [(["owners", "1"], "search"), (["tier"], "7"), (["deep", "name"], "x")]:
            part = {"routeMetadata": ["leapgate", *key], "type": "number" if key == ["tier"] else "string"}
            with self.subTest(part):
                self.check([part], [{}] * 3, [200, 200, 429], [{"value": value, "count": 2}], routes=[api])
        for key in (["deep"], ["plan"], ["owners"], ["owners", "2"]):
            part = {"routeMetadata": ["leapgate", *key]}
            with self.subTest(part):
                self.check([part], [{}] * 3, [200, 200, 429], [{"value": [None], "count": 2}], routes=[api])


class Names(EnvoyTest):
    """Each resource has one request in all, so that the status tells which paths are one resource."""

    def named(self, source, routes, rules=()):
        document = {"flowRules": [*rules, {"resource": "*", **MINUTE}], "envoy": {"resource": source}}
        return self.envoy(document, routes, workers=1)

    def entered(self, envoy):
        """The resources that have been entered, without the further ones."""
        def names():
            prefix = "wasmcustom.leapgate.passed;rule=*/600s;;2a2f;resource="
            return sorted({name[len(prefix):].split(";;")[0] for name in envoy.stats() if name.startswith(prefix)} - {""})
        return names

    def check(self, envoy, *paths, names):
        """The first request for each of the paths passes; together they are these resources."""
        self.assertEqual([envoy.get(path)[0] for path in paths], [200] * len(paths))
        self.assertEqual([envoy.get(path)[0] for path in paths], [429] * len(paths))
        eventually(f"the resources are {names}", lambda: self.entered(envoy)() == sorted(names))

    def test_an_owner_names_the_resource_of_a_route(self):
        routes = [with_metadata(route("default", prefix="/checkout"), leapgate={"resource": "checkout"}),
                  with_metadata(route("default", prefix="/search"), leapgate={"resource": "search"}),
                  route("default", prefix="/plain")]
        envoy = self.named({"from": {"routeMetadata": ["leapgate", "resource"]}}, routes)
        self.check(envoy, "/checkout", "/search", "/plain", names=["checkout", "search", "default"])

    def test_an_update_of_a_routes_metadata_alone_is_seen_at_once(self):
        def routes(name):
            return [with_metadata(route("default", prefix="/"), leapgate={"resource": name})]

        source = {"from": {"routeMetadata": ["leapgate", "resource"]}}
        envoy = self.named(source, routes("checkout"))
        self.assertEqual([envoy.get("/")[0] for _ in range(2)], [200, 429])
        envoy.hosts[0]["routes"] = routes("search")
        document = {"flowRules": [{"resource": "*", **MINUTE}], "envoy": {"resource": source}}
        self.assertTrue(envoy.configure(document))
        eventually("the new name is in force", lambda: envoy.get("/")[0] == 200)
        self.assertEqual(envoy.get("/")[0], 429)
        eventually("both names", lambda: self.entered(envoy)() == ["checkout", "search"])

    def envoy_gateway(self):
        """Routes as Envoy Gateway writes them for an HTTPRoute whose second rule has a name, and for a GRPCRoute."""
        def made(kind, name, rule, prefix, **more):
            resource = {"kind": kind, "namespace": "shop", "name": name, **more}
            found = route(f"{kind.lower()}/shop/{name}/rule/{rule}/match/0/shop_example_com", prefix=prefix)
            return with_metadata(found, envoy_gateway={"resources": [resource]})

        annotations = {"annotations": {"leapgate-resource": "carts"}}
        return [made("HTTPRoute", "checkout", 0, "/cart", **annotations),
                made("HTTPRoute", "checkout", 1, "/pay", sectionName="pay", **annotations),
                made("GRPCRoute", "stock", 0, "/stock.v1.Stock/")]

    def test_a_rule_names_the_object_that_envoy_gateway_has_made_a_route_from(self):
        rule = {"resource": "httproute/shop/checkout", "count": 2, "intervalMs": 600_000}
        envoy = self.named({"from": "envoyGateway"}, self.envoy_gateway(), [rule])
        paths = ["/cart", "/pay", "/pay", "/cart", "/stock.v1.Stock/Get", "/stock.v1.Stock/Set"]
        self.assertEqual([envoy.get(path)[0] for path in paths], [200, 200, 429, 429, 200, 429])
        _, headers, _ = envoy.get("/pay")
        self.assertEqual(headers["ratelimit-policy"], '"httproute/shop/checkout/600s";q=2;w=600')

    def test_a_rule_names_a_section_of_it(self):
        envoy = self.named({"from": "envoyGateway", "section": True}, self.envoy_gateway())
        self.check(envoy, "/cart", "/pay", "/stock.v1.Stock/Get",
                   names=["httproute/shop/checkout", "httproute/shop/checkout/pay", "grpcroute/shop/stock"])

    def test_an_annotation_of_an_httproute_names_its_resource(self):
        path = ["envoy-gateway", "resources", "0", "annotations", "leapgate-resource"]
        envoy = self.named({"from": {"routeMetadata": path}}, self.envoy_gateway())
        self.assertEqual([envoy.get(path)[0] for path in ("/cart", "/pay")], [200, 429])
        eventually("its name", lambda: self.entered(envoy)() == ["carts"])

    def istio(self):
        """Routes as Istio writes them: without a name for rules without one, and `default` without a VirtualService."""
        def of(name, prefix, service="checkout"):
            config = f"/apis/networking.istio.io/v1/namespaces/shop/virtual-service/{service}"
            return with_metadata(route(name, prefix=prefix), istio={"config": config})

        unnamed = of("", "/cart")
        del unnamed["name"]
        return [unnamed, of("pay.fast", "/pay"), of("pay.fast", "/other", "stock"), route("default", prefix="/")]

    def test_a_resource_is_the_virtual_service_that_istio_has_made_a_route_from(self):
        envoy = self.named({"from": "istio"}, self.istio())
        self.check(envoy, "/cart", "/other", "/", names=["virtual-service/shop/checkout", "virtual-service/shop/stock", "default"])
        self.assertEqual(envoy.get("/pay")[0], 429, "the same VirtualService")

    def test_a_resource_is_a_named_route_of_a_virtual_service(self):
        envoy = self.named({"from": "istio", "section": True}, self.istio())
        names = ["virtual-service/shop/checkout", "virtual-service/shop/checkout/pay.fast", "virtual-service/shop/stock/pay.fast", "default"]
        self.check(envoy, "/cart", "/pay", "/other", "/", names=names)
