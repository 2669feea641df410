package test

import (
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	k8sjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"

	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/reload"
)

const manifests = "deploy/kubernetes/"

// kustomization is the part of that file that is used here.
type kustomization struct {
	metav1.TypeMeta
	Namespace string   `json:"namespace"`
	Resources []string `json:"resources"`
	Images    []struct {
		Name    string `json:"name"`
		NewName string `json:"newName"`
		NewTag  string `json:"newTag"`
	} `json:"images"`
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

// objects are those of the manifests, by kind and name: "Service safebrowsing-dns".
func objects(t *testing.T) map[string]any {
	t.Helper()
	top := documentsOf(t, "kustomization.yaml")[0].(*kustomization)
	if top.Namespace != "safebrowsing" || len(top.Images) != 1 || strings.Contains(top.Images[0].NewName, "/") {
		t.Errorf("Expected one image of the reader's own, in the namespace safebrowsing, got %+v", top)
	}
	all := make(map[string]any)
	files := []string{"kustomization.yaml"}
	for _, name := range top.Resources {
		files = append(files, name)
		for _, o := range documentsOf(t, name) {
			meta := o.(metav1.Object)
			key := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.") + " " + meta.GetName()
			if all[key] != nil {
				t.Errorf("%s: expected one %s", name, key)
			}
			if ns := meta.GetNamespace(); ns != "" {
				t.Errorf("%s: expected the namespace of the kustomization, got %s", key, ns)
			}
			if component := meta.GetLabels()["app.kubernetes.io/component"]; name != "namespace.yaml" && component != strings.TrimSuffix(name, ".yaml") {
				t.Errorf("%s: expected the component of its file, by which the relay is started first, got %q", key, component)
			}
			all[key] = o
		}
	}
	there, err := fs.Glob(repository, manifests+"*.yaml")
	if err != nil || len(there) != len(files) {
		t.Errorf("Expected the kustomization to have all of %q, %v", there, err)
	}
	return all
}

// documentsOf decodes a file. An unknown field is an error.
func documentsOf(t *testing.T, name string) (all []any) {
	t.Helper()
	raw, err := fs.ReadFile(repository, path.Join(manifests, name))
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(raw), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		make := kinds[kind.APIVersion+" "+kind.Kind]
		if make == nil {
			t.Fatalf("%s: unknown kind %s %s", name, kind.APIVersion, kind.Kind)
		}
		o := make()
		raw, err := yaml.YAMLToJSONStrict([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// As the API server does, and unlike encoding/json: a field in other letters is unknown.
		if strict, err := k8sjson.UnmarshalStrict(raw, o); err != nil || len(strict) > 0 {
			t.Fatalf("%s: %v %v", name, err, strict)
		}
		all = append(all, o)
	}
	return all
}

// of returns an object of the manifests.
func of[T any](t *testing.T, all map[string]any, name string) *T {
	t.Helper()
	key := strings.TrimPrefix(fmt.Sprintf("%T", new(T)), "*v1.") + " " + name
	o, ok := all[key].(*T)
	if !ok {
		t.Fatalf("Expected a %s, got %q", key, slices.Collect(maps.Keys(all)))
	}
	return o
}

// port returns the port of a container with a name or a number, or nil.
func port(c *corev1.Container, p intstr.IntOrString, protocol corev1.Protocol) *corev1.ContainerPort {
	i := slices.IndexFunc(c.Ports, func(have corev1.ContainerPort) bool {
		if (have.Protocol == corev1.ProtocolUDP) != (protocol == corev1.ProtocolUDP) {
			return false
		}
		return p.Type == intstr.String && have.Name == p.StrVal || p.Type == intstr.Int && have.ContainerPort == p.IntVal
	})
	if i < 0 {
		return nil
	}
	return &c.Ports[i]
}

// Each Service, policy and budget selects the pods of one Deployment, and names ports that
// they have.
func TestManifestsFitTogether(t *testing.T) {
	all := objects(t)
	for _, name := range []string{"safebrowsing-relay", "safebrowsing-dns"} {
		d := of[appsv1.Deployment](t, all, name)
		labels, c := d.Spec.Template.Labels, &d.Spec.Template.Spec.Containers[0]
		service, policy := of[corev1.Service](t, all, name), of[networkingv1.NetworkPolicy](t, all, name)
		selectors := map[string]map[string]string{
			"Deployment": d.Spec.Selector.MatchLabels, "Service": service.Spec.Selector, "NetworkPolicy": policy.Spec.PodSelector.MatchLabels, "labels": d.Labels,
		}
		if name == "safebrowsing-dns" {
			selectors["PodDisruptionBudget"] = of[policyv1.PodDisruptionBudget](t, all, name).Spec.Selector.MatchLabels
			selectors["spread"] = d.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels
		}
		for what, selector := range selectors {
			if len(labels) != 2 || !maps.Equal(selector, labels) {
				t.Errorf("%s: Expected the selector of %s to be %v, got %v", name, what, labels, selector)
			}
		}
		for _, p := range service.Spec.Ports {
			if port(c, p.TargetPort, p.Protocol) == nil {
				t.Errorf("Service %s: Expected the container to have the port %v", name, p)
			}
		}
		for _, rule := range policy.Spec.Ingress {
			if len(rule.From) == 0 {
				t.Errorf("NetworkPolicy %s: Expected to name who may ask, got %+v", name, rule)
			}
			for _, p := range rule.Ports {
				if port(c, *p.Port, protocolOf(p)) == nil {
					t.Errorf("NetworkPolicy %s: Expected the container to have the port %v", name, p)
				}
			}
		}
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if port(c, probe.HTTPGet.Port, corev1.ProtocolTCP) == nil {
				t.Errorf("%s: Expected the container to have the port of %v", name, probe.HTTPGet)
			}
		}
		wantVolumes(t, all, d)
	}
	relay := of[appsv1.Deployment](t, all, "safebrowsing-relay")
	if *relay.Spec.Replicas != 1 || relay.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("Expected one relay at a time, since one folder has one owner: %+v", relay.Spec)
	}
	clients := of[networkingv1.NetworkPolicy](t, all, "safebrowsing-relay").Spec.Ingress[0].From[0].PodSelector
	if d := of[appsv1.Deployment](t, all, "safebrowsing-dns"); !maps.Equal(clients.MatchLabels, d.Spec.Template.Labels) {
		t.Errorf("Expected that CoreDNS may ask the relay, got %v", clients)
	}
	for _, network := range of[corev1.Service](t, all, "safebrowsing-dns").Spec.Ports {
		if network.Port != 53 {
			t.Errorf("Expected port 53, got %v", network)
		}
	}
}

func protocolOf(p networkingv1.NetworkPolicyPort) corev1.Protocol {
	if p.Protocol == nil {
		return corev1.ProtocolTCP
	}
	return *p.Protocol
}

// wantVolumes wants each volume to be mounted and each mount to have a volume. Claims and
// ConfigMaps must be there.
func wantVolumes(t *testing.T, all map[string]any, d *appsv1.Deployment) {
	t.Helper()
	var volumes, mounts []string
	for _, v := range d.Spec.Template.Spec.Volumes {
		volumes = append(volumes, v.Name)
		if v.ConfigMap != nil {
			of[corev1.ConfigMap](t, all, v.ConfigMap.Name)
		}
		if v.PersistentVolumeClaim != nil {
			of[corev1.PersistentVolumeClaim](t, all, v.PersistentVolumeClaim.ClaimName)
		}
	}
	for _, m := range d.Spec.Template.Spec.Containers[0].VolumeMounts {
		mounts = append(mounts, m.Name)
		if m.SubPath != "" {
			t.Errorf("%s: Expected no subPath: such a file never changes", d.Name)
		}
	}
	slices.Sort(volumes)
	slices.Sort(mounts)
	if !slices.Equal(volumes, mounts) {
		t.Errorf("%s: Expected the mounts %q, got %q", d.Name, volumes, mounts)
	}
}

// The pods run where the Pod Security Standard restricted is enforced, as it is in the
// namespace (Kubernetes, "Pod Security Standards").
func TestPodsNeedNoPrivilege(t *testing.T) {
	all := objects(t)
	if got := of[corev1.Namespace](t, all, "safebrowsing").Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		t.Errorf("Expected the namespace to enforce restricted, got %q", got)
	}
	// The file /coredns of the image has this capability: without it exec fails (capabilities(7),
	// "Safety checking for capability-dumb binaries").
	needed := map[string][]corev1.Capability{"/coredns": {"NET_BIND_SERVICE"}}
	for _, name := range []string{"safebrowsing-relay", "safebrowsing-dns"} {
		spec := of[appsv1.Deployment](t, all, name).Spec.Template.Spec
		pod, c := spec.SecurityContext, spec.Containers[0]
		if pod == nil || !*pod.RunAsNonRoot || *pod.RunAsUser == 0 || *pod.FSGroup == 0 || pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *spec.AutomountServiceAccountToken {
			t.Errorf("%s: got %+v", name, pod)
		}
		if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, needed[c.Command[0]]) {
			t.Errorf("%s: got %+v", name, s)
		}
		if _, limited := c.Resources.Limits[corev1.ResourceMemory]; !limited || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s: Expected requests, and a limit of memory, got %+v", name, c.Resources)
		}
		for _, p := range c.Ports {
			if p.ContainerPort < 1024 {
				t.Errorf("%s: Expected a port without a privilege, got %d", name, p.ContainerPort)
			}
		}
	}
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
		if p.Name != "dns" && p.Name != "dns-tcp" {
			free[p.Name] = testkit.FreeAddress(t, w.host)
		}
	}
	replaced := []string{
		".:1053 {", ".:0 {\n\tbind " + w.host,
		fmt.Sprintf("http://%s.safebrowsing.svc.cluster.local:%d", relay.Name, relay.Spec.Ports[0].Port), w.endpoint,
		mountOf(t, c, "clients") + "/client.key", writeFile(t, t.TempDir(), "client.key", "CLIENT\n"),
		"db " + mountOf(t, c, "db"), "db " + w.db,
		"9.9.9.9 149.112.112.112", w.upstream,
		"health :8080", "health " + free["health"], "ready :8181", "ready " + free["ready"], "prometheus :9153", "prometheus " + free["metrics"],
		mountOf(t, c, "corefile") + "/blocklist.txt", writeFile(t, t.TempDir(), "blocklist.txt", of[corev1.ConfigMap](t, all, "safebrowsing-dns").Data["blocklist.txt"]),
		"limit off", "limit off\n\t\tconfirm_timeout 4s",
	}
	for i := 0; i < len(replaced); i += 2 {
		if !strings.Contains(corefile, replaced[i]) {
			t.Errorf("Expected %q in\n%s", replaced[i], corefile)
		}
	}
	w.start(strings.NewReplacer(replaced...).Replace(corefile))
	w.updated(1)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.wantBlocked("blocked.example.", dns.TypeA, "blocklist blocklist.txt")
	w.wantPassed("good.example.com.", dns.TypeA)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		url := "http://" + free[probe.HTTPGet.Port.StrVal] + probe.HTTPGet.Path
		testkit.Until(w.t, url, func() bool {
			answer, err := http.Get(url)
			if err != nil {
				return false
			}
			answer.Body.Close()
			return answer.StatusCode == http.StatusOK
		})
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
