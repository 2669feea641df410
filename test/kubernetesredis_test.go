package test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	k8sjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// patched applies a patch of the overlay for Redis to an object, as kustomize does, and
// decodes the result strictly.
func patched[T any](t *testing.T, o any, name string) *T {
	t.Helper()
	raw, err := fs.ReadFile(repository, "deploy/kubernetes-redis/"+name)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = yaml.YAMLToJSONStrict(raw); err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(raw)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	// The manifest has no status. Of another kind it would have other fields.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(after, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "status")
	if after, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	result := new(T)
	if strict, err := k8sjson.UnmarshalStrict(after, result); err != nil || len(strict) > 0 {
		t.Fatalf("%s: %v %v", name, err, strict)
	}
	return result
}

// The overlay makes two relays out of one. Each has a folder of its own, and all pods find
// Valkey, which only relays may ask.
func TestTheOverlayForRedisFits(t *testing.T) {
	all := objects(t)
	valkey := make(map[string]any)
	for _, o := range documentsOf(t, "../kubernetes-redis/valkey.yaml") {
		switch o := o.(type) {
		case *appsv1.Deployment:
			valkey["Deployment"] = o
		case *corev1.Service:
			valkey["Service"] = o
		case *networkingv1.NetworkPolicy:
			valkey["NetworkPolicy"] = o
		case *policyv1.PodDisruptionBudget:
			valkey["PodDisruptionBudget"] = o
		}
	}
	d, service := valkey["Deployment"].(*appsv1.Deployment), valkey["Service"].(*corev1.Service)
	labels := d.Spec.Template.Labels
	for what, selector := range map[string]map[string]string{
		"Deployment": d.Spec.Selector.MatchLabels, "Service": service.Spec.Selector,
		"NetworkPolicy": valkey["NetworkPolicy"].(*networkingv1.NetworkPolicy).Spec.PodSelector.MatchLabels,
	} {
		if !maps.Equal(selector, labels) {
			t.Errorf("%s: expected the selector %v, got %v", what, labels, selector)
		}
	}

	before := of[appsv1.Deployment](t, all, "safebrowsing-relay")
	relay := patched[appsv1.StatefulSet](t, before, "relay-patch.yaml")
	pod := relay.Spec.Template.Spec
	if relay.Kind != "StatefulSet" || *relay.Spec.Replicas != 2 || relay.Spec.ServiceName != of[corev1.Service](t, all, "safebrowsing-relay").Name {
		t.Errorf("expected a StatefulSet of 2 behind the same Service, got %s of %d for %s", relay.Kind, *relay.Spec.Replicas, relay.Spec.ServiceName)
	}
	if !maps.Equal(relay.Spec.Template.Labels, before.Spec.Template.Labels) || !maps.Equal(valkey["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget).Spec.Selector.MatchLabels, before.Spec.Template.Labels) {
		t.Error("expected the labels of the relay to stay, and its budget to select them")
	}
	have := []string{relay.Spec.VolumeClaimTemplates[0].Name}
	for _, v := range pod.Volumes {
		have = append(have, v.Name)
	}
	var mounted []string
	for _, m := range pod.Containers[0].VolumeMounts {
		mounted = append(mounted, m.Name)
	}
	slices.Sort(have)
	slices.Sort(mounted)
	if !slices.Equal(have, mounted) {
		t.Errorf("expected the volumes %q to be mounted, got %q", have, mounted)
	}
	// Kubernetes sets NAME_SERVICE_HOST for each Service (Kubernetes, "Service").
	variable := "$(" + strings.ToUpper(strings.ReplaceAll(service.Name, "-", "_")) + "_SERVICE_HOST)"
	if want := "-redis=redis://" + variable + ":6379"; !slices.Contains(pod.Containers[0].Args, want) || service.Spec.Ports[0].Port != 6379 {
		t.Errorf("expected %s in %q", want, pod.Containers[0].Args)
	}
	policy := patched[networkingv1.NetworkPolicy](t, of[networkingv1.NetworkPolicy](t, all, "safebrowsing-relay"), "network-patch.yaml")
	last := policy.Spec.Egress[len(policy.Spec.Egress)-1]
	if !maps.Equal(last.To[0].PodSelector.MatchLabels, labels) || last.Ports[0].Port.IntValue() != 6379 {
		t.Errorf("expected that relays may ask Valkey, got %+v", last)
	}
	if from := valkey["NetworkPolicy"].(*networkingv1.NetworkPolicy).Spec.Ingress[0].From[0].PodSelector; !maps.Equal(from.MatchLabels, before.Spec.Template.Labels) {
		t.Errorf("expected that only relays may ask Valkey, got %+v", from)
	}
}
