// Package deploy lets Istio's own code check what deploy/ has, and keeps what Istio makes of it, so that tests/envoy/test_deploy.py can run
// that in the real Envoy each time: compiling Istio takes minutes. `./build.sh test deploy` runs it.
package deploy

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wasmfilter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"

	extensions "istio.io/api/extensions/v1alpha1"
	"istio.io/istio/pilot/pkg/config/kube/crd"
	"istio.io/istio/pilot/pkg/config/memory"
	"istio.io/istio/pilot/pkg/model"
	v3 "istio.io/istio/pilot/pkg/xds/v3"
	"istio.io/istio/pilot/test/xds"
	"istio.io/istio/pkg/bootstrap"
	"istio.io/istio/pkg/config"
	schemas "istio.io/istio/pkg/config/crd"
	"istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/validation"
	"istio.io/istio/pkg/util/protomarshal"
	"istio.io/istio/pkg/wasm"
)

const (
	root = "../../"
	// What `./build.sh test deploy` has taken from the modules of Istio and Envoy Gateway.
	sources = root + ".tools/deploy/sources/"
)

var resources = []string{
	"istio/wasmplugin.yaml", "istio/trafficextension.yaml",
	"envoy-gateway/envoyextensionpolicy.yaml", "envoy-gateway/clienttrafficpolicy.yaml",
}

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

// keep writes a value into a file of the repository, and fails if the file had another content.
func keep(t *testing.T, path string, value any) {
	t.Helper()
	data, err := json.MarshalIndent(value, "", "  ")
	must(t, err)
	data = append(data, '\n')
	if before, err := os.ReadFile(path); err == nil && bytes.Equal(before, data) {
		return
	}
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, data, 0o644))
	t.Errorf("tests/deploy/%s was not what it is made of, and has been written anew: see `git diff tests/deploy`, and commit it.", path)
}

// plain is a message as JSON has it, in Envoy's spelling of fields.
func plain(t *testing.T, message proto.Message) map[string]any {
	t.Helper()
	text, err := protomarshal.MarshalProtoNames(message)
	must(t, err)
	found := map[string]any{}
	must(t, json.Unmarshal(text, &found))
	return found
}

// ---- the schemas of the resources ------------------------------------------------------------------

func TestTheSchemasOfIstioAndEnvoyGatewayAcceptTheResources(t *testing.T) {
	files, err := filepath.Glob(sources + "*.yaml")
	must(t, err)
	validator, err := schemas.NewValidatorFromFilesWithOptions(files, schemas.WithoutCRDValidation())
	must(t, err)
	for _, resource := range resources {
		text := string(read(t, root+"deploy/"+resource))
		if err := validator.ValidateCustomResourceYAML(text, nil); err != nil {
			t.Errorf("%s: %v", resource, err)
		}
		wrong := strings.Replace(text, "\nspec:\n", "\nspec:\n  rules: 1\n", 1)
		if err := validator.ValidateCustomResourceYAML(wrong, nil); err == nil || !strings.Contains(err.Error(), "spec.rules") {
			t.Errorf("%s with a field that its schema does not have: %v", resource, err)
		}
	}
}

// The schemas without what the light check does not read.
func TestTheSchemasAreKept(t *testing.T) {
	files, err := filepath.Glob(sources + "*.yaml")
	must(t, err)
	kept := 0
	for _, file := range files {
		for _, text := range strings.Split(string(read(t, file)), "\n---") {
			found := struct {
				Spec struct {
					Group    string
					Names    struct{ Kind string }
					Versions []struct {
						Name   string
						Schema struct{ OpenAPIV3Schema map[string]any }
					}
				}
			}{}
			must(t, yaml.Unmarshal([]byte(text), &found))
			kind := found.Spec.Names.Kind
			if !slices.Contains([]string{"WasmPlugin", "TrafficExtension", "EnvoyExtensionPolicy", "ClientTrafficPolicy"}, kind) {
				continue
			}
			version := found.Spec.Versions[0]
			spec := version.Schema.OpenAPIV3Schema["properties"].(map[string]any)["spec"]
			keep(t, "crds/"+strings.ToLower(kind)+".json", map[string]any{
				"apiVersion": found.Spec.Group + "/" + version.Name, "kind": kind, "spec": checked(spec),
			})
			kept++
		}
	}
	if kept != len(resources) {
		t.Errorf("%d schemas of %d", kept, len(resources))
	}
}

func checked(schema any) any {
	switch schema := schema.(type) {
	case map[string]any:
		// The apiserver's own code, above, has checked these.
		delete(schema, "x-kubernetes-validations")
		if _, ok := schema["description"].(string); ok {
			delete(schema, "description")
		}
		for _, part := range schema {
			checked(part)
		}
	case []any:
		for _, part := range schema {
			checked(part)
		}
	}
	return schema
}

// ---- Istio's resources -----------------------------------------------------------------------------

func parse(t *testing.T, resource string) config.Config {
	t.Helper()
	found, unknown, err := crd.ParseInputs(string(read(t, root+"deploy/istio/"+resource+".yaml")))
	must(t, err)
	if len(found) != 1 || len(unknown) != 0 {
		t.Fatalf("%s: %v %v", resource, found, unknown)
	}
	return found[0]
}

func TestIstioFindsTheResourcesValid(t *testing.T) {
	for resource, validate := range map[string]func(config.Config) (validation.Warning, error){
		"wasmplugin": validation.ValidateWasmPlugin, "trafficextension": validation.ValidateTrafficExtension,
	} {
		warning, err := validate(parse(t, resource))
		if warning != nil || err != nil {
			t.Errorf("%s: %v %v", resource, warning, err)
		}
	}
}

// ---- the image -------------------------------------------------------------------------------------

// push starts a registry and pushes dist/image to it; returns the image's name there and its digest without the algorithm.
func push(t *testing.T) (string, string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	index, err := layout.ImageIndexFromPath(root + "dist/image")
	must(t, err)
	manifest, err := index.IndexManifest()
	must(t, err)
	image, err := index.Image(manifest.Manifests[0].Digest)
	must(t, err)
	at := strings.TrimPrefix(server.URL, "http://") + "/leapgate:0.1.0"
	reference, err := name.ParseReference(at)
	must(t, err)
	must(t, remote.Write(reference, image))
	return at, digest(t, image)
}

func digest(t *testing.T, image v1.Image) string {
	t.Helper()
	digest, err := image.Digest()
	must(t, err)
	return digest.Hex
}

func TestIstioFetchesTheImage(t *testing.T) {
	at, digest := push(t)
	fetch, found, err := wasm.NewImageFetcher(t.Context(), wasm.ImageFetcherOption{}).PrepareFetch(at)
	must(t, err)
	if found != digest {
		t.Errorf("digest %s, not %s", found, digest)
	}
	module, err := fetch()
	must(t, err)
	if !bytes.Equal(module, read(t, root+"dist/leapgate.wasm")) {
		t.Errorf("%d other bytes", len(module))
	}
}

// ---- Istio's translation ---------------------------------------------------------------------------

// A plugin is one of Istio's two resources, in parts that can be changed.
type plugin struct {
	config.Config
	url, sha256 *string
	document    *structpb.Struct
}

func open(t *testing.T, resource string) plugin {
	t.Helper()
	found := parse(t, resource)
	if extension, ok := found.Spec.(*extensions.TrafficExtension); ok {
		wasm := extension.GetWasm()
		return plugin{found, &wasm.Url, &wasm.Sha256, wasm.PluginConfig}
	}
	wasm := found.Spec.(*extensions.WasmPlugin)
	return plugin{found, &wasm.Url, &wasm.Sha256, wasm.PluginConfig}
}

// istio is a control plane with one gateway.
type istio struct {
	*xds.FakeDiscoveryServer
	gateway *model.Proxy
	files   string
}

func start(t *testing.T, plugin plugin, labels map[string]string) istio {
	t.Helper()
	shop, _, err := crd.ParseInputs(string(read(t, "shop.yaml")))
	must(t, err)
	plugin.ResourceVersion = "1"
	server := xds.NewFakeDiscoveryServer(t, xds.FakeOptions{
		Configs: append(shop, plugin.Config), KubernetesObjectString: string(read(t, "gatewayapi.yaml")),
	})
	return istio{server, server.SetupProxy(&model.Proxy{
		Type: model.Router, ConfigNamespace: plugin.Namespace, Labels: labels,
		Metadata: &model.NodeMetadata{Namespace: plugin.Namespace, Labels: labels},
	}), t.TempDir()}
}

// manager is the connection manager of the gateway's only listener.
func (istio istio) manager(t *testing.T) *hcm.HttpConnectionManager {
	t.Helper()
	listeners := istio.Listeners(istio.gateway)
	manager := &hcm.HttpConnectionManager{}
	must(t, listeners[0].FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(manager))
	return manager
}

// converted is what the agent in the gateway's pod makes of an answer of the control plane: it fetches the module, and Envoy gets a file.
func (istio istio) converted(t *testing.T, answer *discovery.DiscoveryResponse) *core.TypedExtensionConfig {
	t.Helper()
	cache := wasm.NewLocalFileCache(istio.files, wasm.Options{})
	defer cache.Cleanup()
	resources := []*anypb.Any{proto.Clone(answer.Resources[0]).(*anypb.Any)}
	must(t, wasm.MaybeConvertWasmExtensionConfig(resources, cache))
	found := &core.TypedExtensionConfig{}
	must(t, resources[0].UnmarshalTo(found))
	return found
}

// portable is a converted configuration as it is kept: the module's file, whose content is checked, gets a name that holds everywhere.
func portable(t *testing.T, found *core.TypedExtensionConfig) map[string]any {
	t.Helper()
	filter := &wasmfilter.Wasm{}
	must(t, found.TypedConfig.UnmarshalTo(filter))
	local := filter.Config.GetVmConfig().Code.GetLocal()
	if !bytes.Equal(read(t, local.GetFilename()), read(t, root+"dist/leapgate.wasm")) {
		t.Errorf("%s is not the module", local.GetFilename())
	}
	local.Specifier = &core.DataSource_Filename{Filename: "dist/leapgate.wasm"}
	any, err := anypb.New(filter)
	must(t, err)
	return plain(t, &core.TypedExtensionConfig{Name: found.Name, TypedConfig: any})
}

// halve halves the count of the first rule.
func halve(document *structpb.Struct) {
	rule := document.Fields["flowRules"].GetListValue().Values[0].GetStructValue()
	rule.Fields["count"] = structpb.NewNumberValue(rule.Fields["count"].GetNumberValue() / 2)
}

// translate keeps what Istio makes of a resource, and of an update of it.
func translate(t *testing.T, file string, plugin plugin, labels map[string]string) {
	t.Helper()
	istio := start(t, plugin, labels)
	manager := istio.manager(t)
	filters, resource := []string{}, ""
	for _, filter := range manager.HttpFilters {
		filters = append(filters, filter.Name)
		if discovery := filter.GetConfigDiscovery(); discovery != nil {
			resource = filter.Name
			if !slices.Equal(discovery.TypeUrls, []string{"type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
				"type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"}) {
				t.Errorf("types %v", discovery.TypeUrls)
			}
		}
	}
	ads := istio.ConnectADS().WithType(v3.ExtensionConfigurationType).WithMetadata(*istio.gateway.Metadata).
		WithID("router~10.0.0.1~gateway." + plugin.Namespace + "~" + plugin.Namespace + ".svc.cluster.local")
	answer := ads.RequestResponseAck(t, &discovery.DiscoveryRequest{ResourceNames: []string{resource}})
	first := portable(t, istio.converted(t, answer))

	halve(plugin.document)
	plugin.ResourceVersion = ""
	plugin.Annotations = map[string]string{memory.ResourceVersion: "2"}
	_, err := istio.Store().Update(plugin.Config)
	must(t, err)
	second := portable(t, istio.converted(t, ads.ExpectResponse(t)))

	keep(t, "translated/"+file+".json", map[string]any{
		"filters": filters, "use_remote_address": manager.UseRemoteAddress.GetValue(),
		"routes": plain(t, istio.Routes(istio.gateway)[0]), "config": first, "updated": second,
	})
}

var (
	ingress    = map[string]string{"istio": "ingressgateway"}
	gatewayAPI = map[string]string{"gateway.networking.k8s.io/gateway-name": "shop"}
)

func TestIstioTranslatesTheWasmPlugin(t *testing.T) {
	plugin := open(t, "wasmplugin")
	at, digest := push(t)
	*plugin.url, *plugin.sha256 = "oci://"+at, digest
	translate(t, "wasmplugin", plugin, ingress)
}

func TestIstioTranslatesTheTrafficExtension(t *testing.T) {
	plugin := open(t, "trafficextension")
	at, digest := push(t)
	*plugin.url, *plugin.sha256 = "oci://"+at, digest
	translate(t, "trafficextension", plugin, gatewayAPI)
}

// With a file in the gateway's image there is nothing to fetch: the agent passes everything on, the resource's version, too.
func TestIstioTranslatesAWasmPluginWithAFile(t *testing.T) {
	plugin := open(t, "wasmplugin")
	path, err := filepath.Abs(root + "dist/leapgate.wasm")
	must(t, err)
	*plugin.url = "file://" + path
	translate(t, "wasmplugin-file", plugin, ingress)
}

func TestAnImageWithAnotherDigestIsRefusedAndSoAreAllRequests(t *testing.T) {
	plugin := open(t, "wasmplugin")
	at, _ := push(t)
	*plugin.url, *plugin.sha256 = "oci://"+at, strings.Repeat("0", 64)
	istio := start(t, plugin, ingress)
	resource := ""
	for _, filter := range istio.manager(t).HttpFilters {
		if filter.GetConfigDiscovery() != nil {
			resource = filter.Name
		}
	}
	answer := istio.ConnectADS().WithType(v3.ExtensionConfigurationType).WithMetadata(*istio.gateway.Metadata).
		WithID("router~10.0.0.1~gateway.istio-ingress~istio-ingress.svc.cluster.local").
		RequestResponseAck(t, &discovery.DiscoveryRequest{ResourceNames: []string{resource}})
	found := istio.converted(t, answer)
	wanted := map[string]any{
		"name": resource,
		"typed_config": map[string]any{
			"@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC",
			"rules": map[string]any{}, "rules_stat_prefix": "wasm-default-deny",
		},
	}
	if got := plain(t, found); !jsonEqual(got, wanted) {
		t.Errorf("%v", got)
	}
}

func jsonEqual(one, other any) bool {
	a, _ := json.Marshal(one)
	b, _ := json.Marshal(other)
	return bytes.Equal(a, b)
}

// The statistics that Istio's proxies keep, and their labels: the filter counts in gauges.
func TestIstioKeepsTheFiltersStatistics(t *testing.T) {
	node, err := bootstrap.GetNodeMetaData(bootstrap.MetadataOptions{
		ID: "router~10.0.0.1~gateway.istio-ingress~istio-ingress.svc.cluster.local", InstanceIPs: []string{"10.0.0.1"},
		ProxyConfig: mesh.DefaultProxyConfig(),
	})
	must(t, err)
	written := &bytes.Buffer{}
	must(t, bootstrap.New(bootstrap.Config{Node: node}).WriteTo(sources+"envoy_bootstrap.json", written))
	found := map[string]any{}
	must(t, json.Unmarshal(written.Bytes(), &found))
	keep(t, "translated/stats.json", found["stats_config"])
}
