package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// promtool runs promtool in a folder of deploy.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(testkit.Program(t, "promtool"), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
}

func TestAlertsFireForTroubleAndNotOnHealthyServers(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	promtool(t, "check", "rules", "../deploy/prometheus/rules.yml")
	promtool(t, "test", "rules", "../deploy/prometheus/rules_test.yml")
}

// promtool reads an expression only in a file of rules.
func TestQueriesOfTheDashboardAreValid(t *testing.T) {
	rules := map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": func() (all []any) {
		for i, expr := range dashboardQueries(t) {
			expr = strings.NewReplacer("$instance", "a", "$__rate_interval", "5m").Replace(expr)
			all = append(all, map[string]string{"record": fmt.Sprintf("query:%d", i), "expr": expr})
		}
		return all
	}()}}}
	text, err := json.Marshal(rules) // JSON is YAML
	testkit.Must(t, err)
	promtool(t, "check", "rules", testkit.Write(t, t.TempDir(), "queries.yml", string(text)))
}

// dashboardQueries returns the queries of the dashboard.
func dashboardQueries(t *testing.T) (all []string) {
	t.Helper()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	testkit.Must(t, json.Unmarshal([]byte(file(t, "deploy/grafana/safebrowsing.json")), &dashboard))
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) < 20 {
		t.Fatalf("Expected the queries of the dashboard, got %q", all)
	}
	return all
}

// exposed returns the metrics of the plugin and of a relay, each with its labels. The
// relay's are read from its own address.
func exposed(t *testing.T) map[string][]string {
	t.Helper()
	all := described(t)
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	listens, ended := make(chan [2]net.Addr, 1), make(chan error, 1)
	settings := engine.Settings{Endpoint: w.endpoint, Protocol: protocol.DialectV5.Name, Lists: config.DefaultLists, Cache: 1000}
	go func() {
		ended <- relay.Run(ctx, relay.Config{Settings: settings, Edge: engine.Edge{FirstContact: atOnce}, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0"},
			func(listen, admin net.Addr) { listens <- [2]net.Addr{listen, admin} })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	at := <-listens
	get(t, "http://"+at[0].String()+"/v5/hashList/se-4b") // counts a request
	metrics := "http://" + at[1].String() + "/metrics"
	testkit.Until(w.t, "a metric of a request to the relay", func() bool {
		for _, m := range regexp.MustCompile(`(?m)^(safebrowsing_relay_[a-z_]+)(?:{([^}]*)})? `).FindAllStringSubmatch(get(t, metrics), -1) {
			all[m[1]] = regexp.MustCompile(`[a-z_]+=`).FindAllString(m[2], -1)
			for i, label := range all[m[1]] {
				all[m[1]][i] = strings.TrimSuffix(label, "=")
			}
		}
		return all["safebrowsing_relay_requests_total"] != nil
	})
	return all
}

func TestDashboardAndAlertsUseMetricsThatExist(t *testing.T) {
	metrics := exposed(t)
	text := strings.Join(dashboardQueries(t), "\n") + file(t, "deploy/prometheus/rules.yml") + file(t, "deploy/prometheus/rules_test.yml")
	used := make(map[string]bool)
	for _, m := range regexp.MustCompile(`\b((?:coredns_safebrowsing|safebrowsing_relay)_[a-z_]+)(?:{([^}]*)})?`).FindAllStringSubmatch(text, -1) {
		name := strings.TrimSuffix(m[1], "_bucket") // of the one histogram
		labels, ok := metrics[name]
		if !ok {
			t.Errorf("Expected a metric %s, there are %v", name, slices.Sorted(maps.Keys(metrics)))
		}
		used[name] = true
		for _, l := range regexp.MustCompile(`([a-z_]+)(?:=~|=)"([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			if l[1] != "instance" && !slices.Contains(labels, l[1]) {
				t.Errorf("%s: Expected a label %s, there are %q", m[0], l[1], labels)
			}
		}
	}
	for _, m := range regexp.MustCompile(`by \(([a-z_, ]+)\) \([a-z]+\(([a-z_]+)`).FindAllStringSubmatch(text, -1) {
		for label := range strings.SplitSeq(m[1], ", ") {
			if name := strings.TrimSuffix(m[2], "_bucket"); label != "instance" && label != "le" && !slices.Contains(metrics[name], label) {
				t.Errorf("%s: Expected a label %s, there are %q", m[0], label, metrics[name])
			}
		}
	}
	for name := range metrics {
		if !used[name] && name != "coredns_safebrowsing_own_list_last_change_timestamp_seconds" {
			t.Errorf("Expected %s in the dashboard or in an alert", name)
		}
	}
}

// The alert of a missing list needs two series, of a server that was never reached. A series that begins with its first
// event does not grow: no alert would see that event.
func TestSeriesOfAlertsAreThereBeforeTheFirstTime(t *testing.T) {
	w := newWorld(t)
	w.endpoint = "http://" + testkit.FreeAddr(t)
	w.start(w.corefile())
	testkit.Until(w.t, "the first contact to fail", w.ready)
	for _, name := range []string{"list_entries", "list_last_success_timestamp_seconds"} {
		testkit.Until(w.t, name+" of three lists", func() bool { return testkit.CountSamples(t, name, "endpoint", w.endpoint) == 3 })
		if got := testkit.Metric(t, name, "endpoint", w.endpoint); got != 0 {
			t.Errorf("Expected %s to be 0, got %v", name, got)
		}
	}
	for _, outcome := range []string{"quota", "refused"} {
		testkit.Equal(t, "methods of requests_total with "+outcome, testkit.CountSamples(t, "requests_total", "outcome", outcome), 2)
	}
}
