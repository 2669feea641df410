package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// notify returns a file of deploy/notify.
func notify(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../deploy/notify/" + name)
	testkit.Must(t, err)
	return string(text)
}

// homeAssistant is what the package for Home Assistant has. Fields that are not known are errors.
type homeAssistant struct {
	Rest []struct {
		Resource     string `json:"resource"`
		ScanInterval int    `json:"scan_interval"`
		Sensor       []struct {
			Name          string   `json:"name"`
			UniqueID      string   `json:"unique_id"`
			ValueTemplate string   `json:"value_template"`
			Attributes    []string `json:"json_attributes"`
			StateClass    string   `json:"state_class"`
		} `json:"sensor"`
	} `json:"rest"`
	Automation []struct {
		ID       string `json:"id"`
		Alias    string `json:"alias"`
		Triggers []struct {
			Trigger string   `json:"trigger"`
			Entity  string   `json:"entity_id"`
			To      []string `json:"to"`
			For     string   `json:"for"`
		} `json:"triggers"`
		Actions []struct {
			Action string            `json:"action"`
			Data   map[string]string `json:"data"`
		} `json:"actions"`
	} `json:"automation"`
}

// templated evaluates a template that is one path into a value, as {{ value_json.today.blocked }}.
func templated(t *testing.T, template string, value any) string {
	t.Helper()
	m := regexp.MustCompile(`^\{\{ value_json((?:\.[a-z_]+)+) \}\}$`).FindStringSubmatch(template)
	if m == nil {
		t.Fatalf("Expected a path, got %q", template)
	}
	for _, part := range strings.Split(m[1], ".")[1:] {
		object, _ := value.(map[string]any)
		var ok bool
		if value, ok = object[part]; !ok {
			t.Fatalf("%s: nothing is called %s in %v", template, part, object)
		}
	}
	return fmt.Sprint(value)
}

// What Home Assistant reads from a server that runs is what it waits for, in good days and in bad ones.
func TestRecipeOfHomeAssistant(t *testing.T) {
	testkit.Long(t)
	var recipe homeAssistant
	testkit.Must(t, yaml.UnmarshalStrict([]byte(notify(t, "home-assistant.yaml")), &recipe))
	if !apart(t) {
		return
	}
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.start(w.corefile("status 127.0.0.1:0", blockList(t, "sb-test.example")))
	w.updated(1)
	w.wantBlocked("sb-test.example.", dns.TypeA, byOwn)
	url := w.pageURL(lines) + "status.json"
	read := func(part string) (v map[string]any) {
		w.made(url, part)
		testkit.Must(t, json.Unmarshal([]byte(get(t, url)), &v))
		return v
	}
	rest := recipe.Rest[0]
	if !strings.HasSuffix(rest.Resource, "/status.json") {
		t.Errorf("It reads %s", rest.Resource)
	}
	state, blocked := rest.Sensor[0], rest.Sensor[1]
	good := read(`"blocked":1`)
	if got := templated(t, state.ValueTemplate, good); got != truth.Protected.String() {
		t.Errorf("The state is %s", got)
	}
	if got := templated(t, blocked.ValueTemplate, good); got != "1" {
		t.Errorf("%s names are blocked", got)
	}
	for _, attribute := range state.Attributes {
		if _, ok := good[attribute]; !ok {
			t.Errorf("There is no attribute %s", attribute)
		}
	}
	trigger := recipe.Automation[0].Triggers[0]
	if want := "sensor." + strings.ReplaceAll(strings.ToLower(state.Name), " ", "_"); trigger.Entity != want {
		t.Errorf("The automation looks at %s, and the sensor is %s", trigger.Entity, want)
	}
	for _, word := range trigger.To {
		if err := new(truth.State).UnmarshalText([]byte(word)); err != nil && word != "unavailable" {
			t.Error(err)
		}
	}
	message := recipe.Automation[0].Actions[0].Data["message"]
	if m := regexp.MustCompile(`^\{\{ state_attr\('([a-z._]+)', '([a-z]+)'\) or '[^']+' \}\}$`).FindStringSubmatch(message); m == nil || m[1] != trigger.Entity || !slices.Contains(state.Attributes, m[2]) {
		t.Errorf("The message is %q", message)
	}
	w.order("/pause", `{"for": "10m"}`)
	if got := templated(t, state.ValueTemplate, read("blocking is paused")); !slices.Contains(trigger.To, got) {
		t.Errorf("Expected %s to be told, got only %q", got, trigger.To)
	}
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
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.start(w.corefile("status 127.0.0.1:0", blockList(t, "sb-test.example")))
	w.updated(1)
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
		if !slices.Equal(got, wanted) {
			t.Errorf("Expected the messages %q, got %q", wanted, got)
		}
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
	config := strings.NewReplacer("https://ntfy.sh/TOPIC", topic.URL+"/dns", "group_wait: 30s", "group_wait: 0s").Replace(notify(t, "alertmanager.yml"))
	var log bytes.Buffer
	c := exec.Command(program, "--config.file", writeFile(t, dir, "alertmanager.yml", config), "--storage.path", dir, "--web.listen-address", address, "--cluster.listen-address=")
	c.Stdout, c.Stderr = &log, &log
	testkit.Must(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	rules, err := os.ReadFile("../deploy/prometheus/rules.yml")
	testkit.Must(t, err)
	var alerts []map[string]any
	waiting := map[string]bool{}
	alert := func(name string) {
		alerts = append(alerts, map[string]any{"labels": map[string]string{"alertname": name, "instance": "192.168.1.2:9153"}, "annotations": map[string]string{"summary": "about " + name}})
	}
	alert("DiskFull")
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		alert(m[1])
		waiting[m[1]] = true
	}
	body, _ := json.Marshal(alerts)
	testkit.Until(t, "Alertmanager to take the alerts", func() bool {
		response, err := http.Post("http://"+address+"/api/v2/alerts", "application/json", bytes.NewReader(body))
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
				if name == "DiskFull" || sent.Status != "firing" || a.Annotations["summary"] != "about "+name {
					t.Errorf("Expected only alerts of the rules, got %s", message)
				}
				delete(waiting, name)
			}
		case <-time.After(time.Minute):
			t.Fatalf("Not sent: %v", waiting)
		}
	}
}

// Each field that the pipeline takes out of a line is in one that CoreDNS has written.
func TestRecipeOfLokiReadsTheLog(t *testing.T) {
	text := notify(t, "loki.alloy")
	names := func(block, argument string) (all []string) {
		t.Helper()
		m := regexp.MustCompile(`(?s)stage\.` + block + ` \{\s+` + argument + `\s+= \{([^}]+)\}`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("Expected a stage %s with %s", block, argument)
		}
		for _, n := range regexp.MustCompile(`(\w+) = ""`).FindAllStringSubmatch(m[1], -1) {
			all = append(all, n[1])
		}
		return all
	}
	selector := regexp.MustCompile(`!~ \\"([^"]+)\\""`).FindStringSubmatch(text)
	source := regexp.MustCompile(`source = "(\w+)"\s+format = "RFC3339Nano"`).FindStringSubmatch(text)
	if selector == nil || source == nil || strings.Count(text, "{") != strings.Count(text, "}")+1 { // the selector has a { of its own
		t.Fatalf("%q %q", selector, source)
	}
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.start(w.corefile("log json"))
	w.updated(1)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	testkit.Until(t, "the line", func() bool { return len(lines.About(`{"time"`)) > 0 })
	object := regexp.MustCompile(selector[1])
	for _, line := range lines.About("") {
		var fields map[string]any
		if isObject := json.Unmarshal([]byte(line), &fields) == nil; isObject != object.MatchString(line) {
			t.Errorf("The selector is wrong about %q", line)
		} else if !isObject {
			continue
		}
		taken := names("json", "expressions")
		for _, name := range append(taken, "threat") { // which the query for an alert asks for
			if _, ok := fields[name]; !ok {
				t.Errorf("Expected %s in %s", name, line)
			}
		}
		for _, label := range append(names("labels", "values"), source[1]) {
			if !slices.Contains(taken, label) {
				t.Errorf("Expected %s to be taken out of the line", label)
			}
		}
		if _, err := time.Parse(time.RFC3339Nano, fmt.Sprint(fields[source[1]])); err != nil {
			t.Error(err)
		}
	}
}
