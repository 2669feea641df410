package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/reload"

	"github.com/miekg/dns"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const manifests = "deploy/kubernetes/"

// kustomization is the part of that file that is used here.
type kustomization struct {
	metav1.TypeMeta
	Namespace string            `json:"namespace"`
	Resources []string          `json:"resources"`
	Images    []json.RawMessage `json:"images"`
	Patches   []struct {
		Path    string                 `json:"path"`
		Patch   string                 `json:"patch"`
		Target  corev1.ObjectReference `json:"target"`
		Options json.RawMessage        `json:"options"`
	} `json:"patches"`
}

// kinds are those that a manifest may have.
var kinds = map[string]func() any{
	"v1 Namespace":                                  func() any { return new(corev1.Namespace) },
	"v1 ConfigMap":                                  func() any { return new(corev1.ConfigMap) },
	"v1 Service":                                    func() any { return new(corev1.Service) },
	"v1 PersistentVolumeClaim":                      func() any { return new(corev1.PersistentVolumeClaim) },
	"apps/v1 Deployment":                            func() any { return new(appsv1.Deployment) },
	"policy/v1 PodDisruptionBudget":                 func() any { return new(policyv1.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy":            func() any { return new(networkingv1.NetworkPolicy) },
	"kustomize.config.k8s.io/v1beta1 Kustomization": func() any { return new(kustomization) },
}

// objects are what the manifests hold, by kind and name: "Service safebrowsing-dns".
func objects(t *testing.T) map[string]any {
	t.Helper()
	all := make(map[string]any)
	for _, name := range documentsOf(t, "kustomization.yaml")[0].(*kustomization).Resources {
		for _, o := range documentsOf(t, name) {
			all[strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")+" "+o.(metav1.Object).GetName()] = o
		}
	}
	return all
}

// documentsOf decodes a file. An unknown field is an error.
func documentsOf(t *testing.T, name string) (all []any) {
	t.Helper()
	for text := range strings.SplitSeq(file(t, manifests+name), "\n---\n") {
		var kind metav1.TypeMeta
		testkit.Must(t, yaml.Unmarshal([]byte(text), &kind))
		make := kinds[kind.APIVersion+" "+kind.Kind]
		if make == nil {
			t.Fatalf("%s: unknown kind %s %s", name, kind.APIVersion, kind.Kind)
		}
		o := make()
		raw, err := yaml.YAMLToJSONStrict([]byte(text))
		testkit.Must(t, err)
		// As the API server does, and unlike encoding/json: a field in other letters is unknown.
		strict, err := k8sjson.UnmarshalStrict(raw, o)
		testkit.Must(t, errors.Join(append(strict, err)...))
		all = append(all, o)
	}
	return all
}

// of returns an object of the manifests.
func of[T any](t *testing.T, all map[string]any, name string) *T {
	t.Helper()
	o, ok := all[strings.TrimPrefix(fmt.Sprintf("%T", new(T)), "*v1.")+" "+name].(*T)
	if !ok {
		t.Fatalf("Expected a %T named %s in %q", o, name, slices.Collect(maps.Keys(all)))
	}
	return o
}

// The Corefile of the ConfigMap starts, blocks what its relay confirms, and serves the paths
// of the probes at the ports of the container.
func TestTheCorefileOfTheManifestsWorks(t *testing.T) {
	all := objects(t)
	d, relay := of[appsv1.Deployment](t, all, "safebrowsing-dns"), of[corev1.Service](t, all, "safebrowsing-relay")
	c := d.Spec.Template.Spec.Containers[0]
	corefile := of[corev1.ConfigMap](t, all, "safebrowsing-dns").Data["Corefile"]
	w := newWorld(t)
	w.google.SetKey("CLIENT")
	w.threaten("evil.example.com/")
	free := map[string]string{}
	for _, p := range c.Ports {
		free[p.Name] = testkit.FreeAddress(t, w.host)
	}
	replaced := []string{
		".:1053 {", ".:0 {\n\tbind " + w.host,
		fmt.Sprintf("http://%s.safebrowsing.svc.cluster.local:%d", relay.Name, relay.Spec.Ports[0].Port), w.endpoint,
		mountOf(t, c, "clients") + "/client.key", writeFile(t, t.TempDir(), "client.key", "CLIENT\n"),
		"db " + mountOf(t, c, "db"), "db " + w.db,
		"9.9.9.9 149.112.112.112", w.upstream,
		"health :8080", "health " + free["health"], "lameduck 5s", "lameduck 1ms", "ready :8181", "ready " + free["ready"], "prometheus :9153", "prometheus " + free["metrics"],
		mountOf(t, c, "corefile") + "/blocklist.txt", writeFile(t, t.TempDir(), "blocklist.txt", of[corev1.ConfigMap](t, all, "safebrowsing-dns").Data["blocklist.txt"]),
		"limit off", "limit off\n\t\tconfirm_timeout 10s",
	}
	for i := 0; i < len(replaced); i += 2 {
		testkit.WantParts(t, corefile, replaced[i])
	}
	w.serve(strings.NewReplacer(replaced...).Replace(corefile))
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.wantBlocked("blocked.example.", dns.TypeA, "blocklist blocklist.txt")
	w.wantPassed("good.example.com.", dns.TypeA)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		testkit.WantOK(t, "http://"+free[probe.HTTPGet.Port.StrVal]+probe.HTTPGet.Path)
	}
}

// mountOf returns where a volume is mounted.
func mountOf(t *testing.T, c corev1.Container, volume string) string {
	t.Helper()
	i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
	if i < 0 {
		t.Fatalf("Expected the volume %s to be mounted", volume)
	}
	return c.VolumeMounts[i].MountPath
}

// A Service with publishNotReadyAddresses leads clients to a pod that ends until it is gone (k8s.io/endpointslice, podToEndpoint),
// so that -lameduck would be in vain. One relay needs it: its clients have no other.
func TestTheServiceOfTwoRelaysLeadsNobodyToOneThatEnds(t *testing.T) {
	var patch string
	for _, p := range documentsOf(t, "../kubernetes-redis/kustomization.yaml")[0].(*kustomization).Patches {
		if p.Target.Kind == "Service" && p.Target.Name == of[corev1.Service](t, objects(t), "safebrowsing-relay").Name {
			patch += p.Patch
		}
	}
	testkit.WantParts(t, patch, "- op: remove\n  path: /spec/publishNotReadyAddresses")
}

// Whoever has a Redis leaves valkey.yaml out, and loses nothing of the relays.
func TestTheFileOfValkeyHasNothingOfTheRelays(t *testing.T) {
	for _, o := range documentsOf(t, "../kubernetes-redis/valkey.yaml") {
		testkit.Equal(t, "part of the fleet", o.(metav1.Object).GetLabels()["app.kubernetes.io/component"], "valkey")
	}
}
