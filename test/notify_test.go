package test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"sigs.k8s.io/yaml"

	truth "github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// What Home Assistant reads from a server that runs is what it waits for, in good days and in bad ones.
func TestRecipeOfHomeAssistant(t *testing.T) {
	testkit.Long(t)
	recipe := file(t, "deploy/notify/home-assistant.yaml")
	testkit.Must(t, yaml.Unmarshal([]byte(recipe), new(any)))
	if !apart(t) {
		return
	}
	testkit.SameDay(t)
	lines := testkit.Capture(t)
	w := threatened(t, "evil.example.com/")
	w.run("status 127.0.0.1:0", blockList(t, "sb-test.example"))
	w.wantBlocked("sb-test.example.", dns.TypeA, byOwn)
	url := w.pageURL(lines) + "status.json"
	read := func(part string) (v map[string]any) {
		w.made(url, part)
		testkit.Must(t, json.Unmarshal([]byte(get(t, url)), &v))
		return v
	}
	list := func(before string) []string {
		found := regexp.MustCompile(before + ` \[(.*)\]`).FindStringSubmatch(recipe)
		if found == nil {
			t.Fatalf("There is no list after %s", before)
		}
		return strings.Split(strings.ReplaceAll(found[1], "'", ""), ", ")
	}
	bad := list(`states\('sensor.safe_browsing'\) in`)
	good := read(`"blocked":1`)
	got := [2]any{good["state"], good["today"].(map[string]any)["blocked"]}
	testkit.Equal(t, "the state, and how many names are blocked", got, [2]any{truth.Protected.String(), 1.0})
	testkit.WantParts(t, recipe, "value_json.state }}", "value_json.today.blocked }}", "state_attr('sensor.safe_browsing', 'headline')")
	for _, attribute := range list("json_attributes:") {
		_, ok := good[attribute]
		testkit.Equal(t, "there is an attribute "+attribute, ok, true)
	}
	// With the key gone only own lists are left.
	testkit.WantParts(t, recipe, fmt.Sprintf("from: %s\n        to: %s\n", truth.Protected, truth.OwnLists))
	for _, word := range bad {
		testkit.Equal(t, word+" is no state", new(truth.State).UnmarshalText([]byte(word)) != nil, word == "unavailable")
	}
	w.order("/pause", `{"for": "10m"}`)
	paused := read("blocking is paused")["state"].(string)
	testkit.Equal(t, paused+" is told", slices.Contains(bad, paused), true)
}

// A topic takes messages.
type topic struct {
	*httptest.Server
	messages chan string
	down     atomic.Bool
}

func newTopic(t *testing.T) *topic {
	s := &topic{messages: make(chan string, 100)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		if s.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		s.messages <- r.Header.Get("Title") + ": " + string(text)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestRecipeOfNtfyTellsEachChangeOnce(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	// cron looks for programs in /usr/bin and /bin only.
	testkit.WantParts(t, file(t, "deploy/notify/ntfy"), "* * * * * root /usr/local/bin/ntfy ")
	lines := testkit.Capture(t)
	w := threatened(t, "evil.example.com/")
	w.run("status "+testkit.FreeAddr(t), blockList(t, "sb-test.example"))
	url := w.pageURL(lines) + "status.json"
	topic, told := newTopic(t), t.TempDir()
	run := func(wanted ...string) {
		t.Helper()
		c := exec.Command("sh", "../deploy/notify/ntfy", topic.URL+"/dns", url)
		c.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+told)
		if out, err := c.CombinedOutput(); (err != nil) != topic.down.Load() {
			t.Errorf("%v\n%s", err, out)
		}
		var got []string
		for len(topic.messages) > 0 {
			got = append(got, <-topic.messages)
		}
		testkit.Equal(t, "messages", got, wanted)
	}
	w.made(url, `"state":"protected"`)
	run()
	w.order("/pause", `{"for": "10m"}`)
	w.made(url, `"state":"not_protected"`)
	topic.down.Store(true)
	run()
	topic.down.Store(false)
	run("Safe Browsing: NOT protected: blocking is paused")
	run()
	w.order("/resume", `{}`)
	w.made(url, `"state":"protected"`)
	run("Safe Browsing: Protected by Safe Browsing v5 and own lists")
	w.stop()
	run("Safe Browsing: CoreDNS does not answer")
	run()
}

// Alertmanager itself reads the file, and sends each alert of the rules, and no other one.
func TestRecipeOfAlertmanagerSendsEachAlert(t *testing.T) {
	program := testkit.Program(t, "prometheus-alertmanager")
	topic := newTopic(t)
	dir, address := t.TempDir(), testkit.FreeAddr(t)
	config := strings.NewReplacer("https://ntfy.sh/TOPIC", topic.URL+"/dns", "group_wait: 30s", "group_wait: 0s").Replace(file(t, "deploy/notify/alertmanager.yml"))
	startForwarder(t, program, "--config.file", writeFile(t, dir, "alertmanager.yml", config), "--storage.path", dir, "--web.listen-address", address, "--cluster.listen-address=")
	const form = `{"labels": {"alertname": %q, "instance": "192.168.1.2:9153"}, "annotations": {"summary": "about %[1]s"}}`
	alerts, waiting := fmt.Sprintf(form, "DiskFull"), map[string]bool{}
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(file(t, "deploy/prometheus/rules.yml"), -1) {
		alerts += ", " + fmt.Sprintf(form, m[1])
		waiting[m[1]] = true
	}
	testkit.Until(t, "Alertmanager to take the alerts", func() bool {
		response, err := http.Post("http://"+address+"/api/v2/alerts", "application/json", strings.NewReader("["+alerts+"]"))
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	for len(waiting) > 0 {
		select {
		case message := <-topic.messages:
			var sent struct {
				Status string
				Alerts []struct{ Labels, Annotations map[string]string }
			}
			testkit.Must(t, json.Unmarshal([]byte(strings.TrimPrefix(message, ": ")), &sent))
			for _, a := range sent.Alerts {
				name := a.Labels["alertname"]
				got := [3]any{name == "DiskFull", sent.Status, a.Annotations["summary"]}
				testkit.Equal(t, "an alert of the rules", got, [3]any{false, "firing", "about " + name})
				delete(waiting, name)
			}
		case <-time.After(time.Minute):
			t.Fatalf("Not sent: %v", waiting)
		}
	}
}

// Each field that the pipeline takes out of a line is in one that CoreDNS has written.
func TestRecipeOfLokiReadsTheLog(t *testing.T) {
	text := file(t, "deploy/notify/loki.alloy")
	file(t, "deploy/systemd/"+regexp.MustCompile(`matches *= "_SYSTEMD_UNIT=(.+)"`).FindStringSubmatch(text)[1])
	object := regexp.MustCompile(regexp.MustCompile(`!~ \\"([^"]+)\\""`).FindStringSubmatch(text)[1]) // the selector's
	taken := []string{"threat"}                                                                       // which the query for an alert asks for
	for _, fields := range regexp.MustCompile(`(?:expressions|values) = \{([^}]+)\}`).FindAllStringSubmatch(text, -1) {
		for _, n := range regexp.MustCompile(`(\w+) = ""`).FindAllStringSubmatch(fields[1], -1) {
			taken = append(taken, n[1])
		}
	}
	lines := testkit.Capture(t)
	w := threatened(t, "evil.example.com/")
	w.run("log json")
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	testkit.Until(t, "the line", func() bool { return len(lines.About(`{"time"`)) > 0 })
	found(t, "fields that are taken", len(taken), 5)
	for _, line := range lines.About("") {
		var fields map[string]any
		isObject := json.Unmarshal([]byte(line), &fields) == nil
		testkit.Equal(t, "the selector takes "+line, object.MatchString(line), isObject)
		for _, name := range taken {
			_, ok := fields[name]
			testkit.Equal(t, name+" is in "+line, ok, isObject)
		}
	}
}

// promtool runs promtool in a folder of deploy.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	inShell(t, testkit.Program(t, "promtool"), args...)
}

func TestAlertsFireForTroubleAndNotOnHealthyServers(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	promtool(t, "check", "rules", "../deploy/prometheus/rules.yml")
	promtool(t, "test", "rules", "../deploy/prometheus/rules_test.yml")
}

// promtool reads an expression only in a file of rules.
func TestQueriesOfTheDashboardAreValid(t *testing.T) {
	rules := "groups: [{name: dashboard, rules: [{record: a, expr: 1}"
	for i, expr := range dashboardQueries(t) {
		rules += fmt.Sprintf(", {record: query:%d, expr: %q}", i, strings.NewReplacer("$instance", "a", "$__rate_interval", "5m").Replace(expr))
	}
	promtool(t, "check", "rules", writeFile(t, t.TempDir(), "queries.yml", rules+"]}]"))
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
	found(t, "queries of the dashboard", len(all), 20)
	return all
}

// exposed returns the metrics of the plugin and of a relay without Redis, each with its labels. The relay has a test that
// docs/fleet.md is right about its own.
func exposed(t *testing.T) map[string][]string {
	t.Helper()
	all := described(t)
	form := regexp.MustCompile("`(safebrowsing_relay_[a-z_]+)(?:{([^}]*)})?`")
	for _, m := range form.FindAllStringSubmatch(file(t, "docs/fleet.md"), -1) {
		if !regexp.MustCompile("redis|lease|leader").MatchString(m[1]) {
			all[m[1]] = strings.Split(m[2], ", ")
		}
	}
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
			testkit.Equal(t, m[0]+": a label "+l[1], slices.Contains(append(labels, "instance"), l[1]), true)
		}
	}
	for _, m := range regexp.MustCompile(`by \(([a-z_, ]+)\) \([a-z]+\(([a-z_]+)`).FindAllStringSubmatch(text, -1) {
		labels := append(metrics[strings.TrimSuffix(m[2], "_bucket")], "instance", "le")
		for label := range strings.SplitSeq(m[1], ", ") {
			testkit.Equal(t, m[0]+": a label "+label, slices.Contains(labels, label), true)
		}
	}
	used["coredns_safebrowsing_own_list_last_change_timestamp_seconds"] = true // by nobody
	for name := range metrics {
		testkit.Equal(t, name+" is in the dashboard or in an alert", used[name], true)
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
		testkit.Equal(t, name, testkit.Metric(t, name, "endpoint", w.endpoint), 0)
	}
	for _, outcome := range []string{"quota", "refused"} {
		testkit.Equal(t, "methods of requests_total with "+outcome, testkit.CountSamples(t, "requests_total", "outcome", outcome), 2)
	}
}
