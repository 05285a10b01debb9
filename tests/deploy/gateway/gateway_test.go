// Package leapgate lets Envoy Gateway's own code fetch the image and translate the policies of deploy/envoy-gateway. It keeps what Envoy Gateway
// makes of them, so that tests/envoy/test_deploy.py can run that in the real Envoy each time. `./build.sh test deploy` runs it.
package leapgate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"testing"

	egv1a1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/envoyproxy/gateway/internal/gatewayapi"
	"github.com/envoyproxy/gateway/internal/gatewayapi/resource"
	"github.com/envoyproxy/gateway/internal/logging"
	"github.com/envoyproxy/gateway/internal/wasm"
	"github.com/envoyproxy/gateway/internal/xds/translator"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	root  = "../../../"
	image = root + "dist/image/"
)

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve is a registry of one image; returns the image's name there, and its digest without the algorithm.
func serve(t *testing.T) (string, string) {
	t.Helper()
	index := struct {
		Manifests []struct{ MediaType, Digest string }
	}{}
	must(t, json.Unmarshal(read(t, image+"index.json"), &index))
	manifest := index.Manifests[0]
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		switch wanted := path.Base(request.URL.Path); wanted {
		case "v2":
		case "0.1.0":
			answer.Header().Set("Content-Type", manifest.MediaType)
			http.ServeFile(answer, request, image+"blobs/"+strings.Replace(manifest.Digest, ":", "/", 1))
		default:
			http.ServeFile(answer, request, image+"blobs/"+strings.Replace(wanted, ":", "/", 1))
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/leapgate:0.1.0", strings.TrimPrefix(manifest.Digest, "sha256:")
}

// policy is the policy with an image of this test's registry and a digest.
func policy(t *testing.T, at, digest string) string {
	t.Helper()
	text := string(read(t, root+"deploy/envoy-gateway/envoyextensionpolicy.yaml"))
	return strings.Replace(text, "        url: registry.example.com/leapgate:0.1.0\n", "        url: "+at+"\n        sha256: \""+digest+"\"\n", 1)
}

// translate returns what Envoy Gateway makes of the shop's gateway with these policies, and what it says of the policy.
func translate(t *testing.T, policies ...string) (*hcmv3.HttpConnectionManager, proto.Message, []string) {
	t.Helper()
	logger := logging.DefaultLogger(io.Discard, egv1a1.LogLevelInfo)
	text := strings.Join(append([]string{string(read(t, "shop.yaml"))}, policies...), "\n---\n")
	resources, err := resource.LoadResourcesFromYAMLBytes([]byte(text), true, nil)
	must(t, err)
	found, err := (&gatewayapi.Translator{
		GatewayControllerName: string(resources.GatewayClass.Spec.ControllerName), GatewayClassName: gwapiv1.ObjectName(resources.GatewayClass.Name),
		EndpointRoutingDisabled: true, BackendEnabled: true, ControllerNamespace: "envoy-gateway-system",
		Logger: logger,
		WasmCache: wasm.NewHTTPServerWithFileCache(wasm.ServerOptions{}, wasm.CacheOptions{CacheDir: t.TempDir()}, "envoy-gateway-system", logger),
	}).Translate(t.Context(), resources)
	must(t, err)
	said := []string{}
	for _, policy := range found.EnvoyExtensionPolicies {
		for _, condition := range policy.Status.Ancestors[0].Conditions {
			said = append(said, condition.Message)
		}
	}
	table, err := (&translator.Translator{ControllerNamespace: "envoy-gateway-system", Logger: logger}).Translate(t.Context(), found.XdsIR["shop/shop"])
	must(t, err)
	manager := &hcmv3.HttpConnectionManager{}
	for _, listener := range table.XdsResources[resourcev3.ListenerType] {
		if listener := listener.(*listenerv3.Listener); listener.Name == "shop/shop/http" {
			must(t, listener.DefaultFilterChain.Filters[0].GetTypedConfig().UnmarshalTo(manager))
		}
	}
	return manager, table.XdsResources[resourcev3.RouteType][0], said
}

// portable is the filter for Envoy to read from a file: it would fetch the module, whose content is checked, from Envoy Gateway.
func portable(t *testing.T, filter *hcmv3.HttpFilter) map[string]any {
	t.Helper()
	config := &wasmv3.Wasm{}
	must(t, filter.GetTypedConfig().UnmarshalTo(config))
	code := config.Config.GetVmConfig().Code
	sum := sha256.Sum256(read(t, root+"dist/leapgate.wasm"))
	if found := code.GetRemote().Sha256; found != hex.EncodeToString(sum[:]) {
		t.Errorf("%s is not the module", found)
	}
	code.Specifier = &corev3.AsyncDataSource_Local{Local: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "dist/leapgate.wasm"}}}
	any, err := anypb.New(config)
	must(t, err)
	filter.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: any}
	return plain(t, filter)
}

// bare is the connection manager without what a test of the filter has no use for.
func bare(t *testing.T, manager *hcmv3.HttpConnectionManager) map[string]any {
	t.Helper()
	manager.HttpFilters, manager.RouteSpecifier, manager.AccessLog = nil, nil, nil
	return plain(t, manager)
}

// plain is a message as JSON has it, in Envoy's spelling of fields.
func plain(t *testing.T, message proto.Message) map[string]any {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	must(t, err)
	found := map[string]any{}
	must(t, json.Unmarshal(text, &found))
	return found
}

func TestEnvoyGatewayFetchesTheImageAndTranslatesThePolicies(t *testing.T) {
	at, digest := serve(t)
	first := policy(t, at, digest)
	manager, routes, said := translate(t, first)
	if strings.Join(said, " ") != "Policy has been accepted." {
		t.Error(said)
	}
	second, _, _ := translate(t, strings.Replace(first, "count: 100", "count: 50", 1))
	behind, _, _ := translate(t, first, string(read(t, root+"deploy/envoy-gateway/clienttrafficpolicy.yaml")))
	data, err := json.MarshalIndent(map[string]any{
		"config": portable(t, manager.HttpFilters[0]), "updated": portable(t, second.HttpFilters[0]), "routes": plain(t, routes),
		"manager": bare(t, manager), "manager_behind_a_proxy": bare(t, behind),
	}, "", "  ")
	must(t, err)
	kept, data := "../translated/envoyextensionpolicy.json", append(data, '\n')
	if before, err := os.ReadFile(kept); err != nil || !bytes.Equal(before, data) {
		must(t, os.WriteFile(kept, data, 0o644))
		t.Errorf("tests/deploy/translated was not what Envoy Gateway makes, and has been written anew: see `git diff tests/deploy`, and commit it.")
	}
}

func TestEnvoyGatewayRefusesAnImageWithAnotherDigest(t *testing.T) {
	at, _ := serve(t)
	_, _, said := translate(t, policy(t, at, strings.Repeat("0", 64)))
	if len(said) != 1 || !strings.Contains(said[0], "does not match") {
		t.Error(said)
	}
}
