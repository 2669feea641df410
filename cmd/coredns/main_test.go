package main

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// stock is the order of CoreDNS, before main sets ours.
var stock = slices.Clone(dnsserver.Directives)

func TestOrderIsThatOfCoreDNSWithSafebrowsingBeforeCache(t *testing.T) {
	i := slices.Index(order, "safebrowsing")
	testkit.Equal(t, "beside it", order[max(i, 1)-1:][:3], []string{"acl", "safebrowsing", "cache"})
	others := slices.Delete(slices.Clone(order), i, i+1)
	testkit.Equal(t, "the others", others, slices.DeleteFunc(slices.Clone(stock), func(d string) bool { return !slices.Contains(others, d) }))
}

// Plugins that only builds with a tag have, and those that the build with the tag router leaves out.
var (
	ofClusters   = []string{"autopath", "dnssec", "k8s_external", "kubernetes"}
	notOnRouters = []string{"auto", "chaos", "file", "https", "https3", "pprof", "proxyproto", "quic", "root", "secondary", "template", "tls", "transfer", "view"}
)

// TestEachBuildHasItsPlugins runs for the build tags of the test itself: .ci/builds runs it with each.
func TestEachBuildHasItsPlugins(t *testing.T) {
	missing := ofClusters
	switch tags := buildTags(t); {
	case slices.Contains(tags, "router"):
		missing = slices.Concat(ofClusters, notOnRouters)
	case slices.Contains(tags, "cluster"):
		missing = nil
	}
	have := directives()
	for _, name := range order {
		testkit.Equal(t, name+" is in this build", slices.Contains(have, name), !slices.Contains(missing, name))
	}
}

func buildTags(t *testing.T) []string {
	t.Helper()
	info, ok := debug.ReadBuildInfo()
	testkit.Equal(t, "it is known how this test was built", ok, true)
	for _, s := range info.Settings {
		if s.Key == "-tags" {
			return strings.Split(s.Value, ",")
		}
	}
	return nil
}

// CoreDNS does not know a word of a Corefile that is not in the order.
func TestEachPluginOfThisBuildIsUsable(t *testing.T) {
	registered := caddy.ListPlugins()["others"]
	testkit.Between(t, "plugins of this build", len(registered), 30, 1000)
	for _, name := range registered {
		name, ours := strings.CutPrefix(name, "dns.")
		testkit.Equal(t, name+" has a place in the order", slices.Contains(order, name), ours)
	}
}

// chartValues are values of CoreDNS's chart that deploy/helm sets, see
// https://github.com/coredns/helm/blob/master/charts/coredns/values.yaml.
type chartValues struct {
	Image struct {
		Repository string `json:"repository"`
		Tag        string `json:"tag"`
	} `json:"image"`
	ReplicaCount    int                         `json:"replicaCount"`
	Resources       corev1.ResourceRequirements `json:"resources"`
	SecurityContext corev1.SecurityContext      `json:"securityContext"`
	Servers         []struct {
		Zones []struct {
			Zone   string `json:"zone"`
			UseTCP bool   `json:"use_tcp"`
		} `json:"zones"`
		Port    int `json:"port"`
		Plugins []struct {
			Name        string `json:"name"`
			Parameters  any    `json:"parameters"` // a number, too
			ConfigBlock string `json:"configBlock"`
		} `json:"plugins"`
	} `json:"servers"`
	ExtraVolumes        []corev1.Volume                  `json:"extraVolumes"`
	ExtraVolumeMounts   []corev1.VolumeMount             `json:"extraVolumeMounts"`
	PodDisruptionBudget policyv1.PodDisruptionBudgetSpec `json:"podDisruptionBudget"`
}

// corefile writes the Corefile as templates/configmap.yaml of the chart does, without the plugins that are left out.
func (v chartValues) corefile(without ...string) string {
	var text strings.Builder
	for _, s := range v.Servers {
		for _, z := range s.Zones {
			text.WriteString(z.Zone)
		}
		fmt.Fprintf(&text, ":%d {\n", s.Port)
		for _, p := range s.Plugins {
			if slices.Contains(without, p.Name) {
				continue
			}
			text.WriteString("    " + p.Name)
			if p.Parameters != nil {
				fmt.Fprint(&text, " ", p.Parameters)
			}
			if p.ConfigBlock != "" {
				text.WriteString(" {\n" + p.ConfigBlock + "\n    }")
			}
			text.WriteString("\n")
		}
		text.WriteString("}\n")
	}
	return text.String()
}

// It starts in a cluster whose API does not answer, and in a build without the plugin kubernetes without that.
func TestTheCorefileOfTheChartStarts(t *testing.T) {
	testkit.Must(t, dnsserver.SetDirectives(directives()))
	api := httptest.NewServer(nil) // everything is not found
	defer api.Close()
	var v chartValues
	testkit.Must(t, yaml.UnmarshalStrict([]byte(testkit.Read(t, "../../deploy/helm/values.yaml")), &v))
	here := t.TempDir()
	own := testkit.Write(t, here, "own.txt", "blocked.example\n")
	var without []string
	if !slices.Contains(directives(), "kubernetes") {
		without = []string{"kubernetes"}
	}
	corefile := v.corefile(without...)
	for old, replaced := range map[string]string{
		".:53 {":   ".:" + testkit.FreePort(t) + " {\n bind 127.0.0.1", // with port 0 it may share the port of another CoreDNS
		"health {": "health 127.0.0.1:0 {", "lameduck 5s": "lameduck 1ms", "ready\n": "ready 127.0.0.1:0\n", "0.0.0.0:9153": "127.0.0.1:0",
		"/etc/safebrowsing/safebrowsing.key": filepath.Join(here, "key"), "db /var/lib/coredns-safebrowsing": "endpoint " + api.URL + "\n block " + own + "\n db " + filepath.Join(here, "db"), // and not Google
		"/etc/resolv.conf": "127.0.0.1:1",
		"pods insecure":    "pods insecure\n endpoint " + api.URL,
	} {
		testkit.Equal(t, old, strings.Contains(corefile, old), old != "pods insecure" || without == nil)
		corefile = strings.Replace(corefile, old, replaced, 1)
	}
	testkit.Write(t, here, "key", "AIza"+strings.Repeat("k", 35)+"\n")
	instance, err := caddy.Start(caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(corefile), ServerTypeName: "dns"})
	if err != nil {
		t.Fatalf("%v in\n%s", err, corefile)
	}
	defer func() { testkit.Must(t, errors.Join(append(instance.ShutdownCallbacks(), instance.Stop())...)) }()
	m, _, err := (&dns.Client{Timeout: 10 * time.Second}).Exchange(new(dns.Msg).SetQuestion("blocked.example.", dns.TypeA), instance.Servers()[0].LocalAddr().String())
	testkit.Must(t, err)
	testkit.Equal(t, "answer", m.Rcode, dns.RcodeNameError)
}
