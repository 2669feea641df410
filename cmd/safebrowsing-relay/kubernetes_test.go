package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// relayOfTheManifests returns the container of the relay in Kubernetes.
func relayOfTheManifests(t *testing.T) corev1.Container {
	t.Helper()
	for text := range strings.SplitSeq(read(t, filepath.Join("..", "..", "deploy", "kubernetes", "relay.yaml")), "\n---\n") {
		var d appsv1.Deployment
		if strings.Contains(text, "kind: Deployment") {
			testkit.Must(t, yaml.UnmarshalStrict([]byte(text), &d))
			return d.Spec.Template.Spec.Containers[0]
		}
	}
	t.Fatal("there is no Deployment")
	return corev1.Container{}
}

// The relay of the manifests starts with its flags, listens at the ports of its container, and
// answers its probes and a client with a key.
func TestTheRelayOfTheManifestsWorks(t *testing.T) {
	c := relayOfTheManifests(t)
	w := filled(t)
	w.SetKey("GOOGLE")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "google"), "GOOGLE\n")
	write(t, filepath.Join(dir, "keys"), "CLIENT\n")
	replacer := strings.NewReplacer("/var/lib/safebrowsing", w.dir,
		"/etc/safebrowsing/google/safebrowsing.key", filepath.Join(dir, "google"), "/etc/safebrowsing/clients/keys", filepath.Join(dir, "keys"))
	if strings.Join(c.Command, " ") != "/safebrowsing-relay" {
		t.Fatalf("the command is %q %q", c.Command, c.Args)
	}
	args := []string{"-endpoint", w.endpoint}
	for _, arg := range c.Args {
		args = append(args, replacer.Replace(arg))
	}
	cfg := relayConfigOf(t, args...)
	for name, address := range map[string]string{"clients": cfg.Listen, "admin": cfg.Admin} {
		if want := fmt.Sprintf("0.0.0.0:%d", portOf(t, c, name)); address != want {
			t.Errorf("the relay listens on %s for %s, want %s", address, name, want)
		}
	}
	url, admin, _ := startRelay(t, append(args, "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0")...)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		portOf(t, c, probe.HTTPGet.Port.StrVal)
		testkit.WantOK(t, admin+probe.HTTPGet.Path)
	}
	testkit.WantOK(t, url+"/v5/hashLists?key=CLIENT")
	if body := testkit.Body(t, url+"/v5/hashLists?key=GOOGLE"); !strings.Contains(body, "this relay needs a key") {
		t.Errorf("the key for Google is one for clients: %s", body)
	}
}

// portOf returns the number of a port of a container.
func portOf(t *testing.T, c corev1.Container, name string) int32 {
	t.Helper()
	for _, p := range c.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	t.Fatalf("the container has no port %s", name)
	return 0
}
