package test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := fs.ReadFile(repository, "README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section returns a section of the README, without its heading.
func section(t *testing.T, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(readme(t), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("Expected the README to have a section %s", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// A property is explained by an item of the list after the syntax, or by one of a
// page that this list links to.
func TestEveryPropertyIsInTheReadme(t *testing.T) {
	syntax, list, _ := strings.Cut(section(t, "Syntax"), "\n~~~\n")
	explained := itemWords(list)
	for _, m := range regexp.MustCompile(`\]\((docs/[a-z0-9-]+\.md)`).FindAllStringSubmatch(list, -1) {
		explained = append(explained, itemWords(documents(t)[m[1]])...)
	}
	for word, usage := range config.Usages() {
		if line := strings.TrimRight("    "+word+" "+usage, " ") + "\n"; !strings.Contains(syntax+"\n", line) {
			t.Errorf("Expected the line %q in the syntax", line)
		}
		if !slices.Contains(explained, word) {
			t.Errorf("Expected %s to be explained", word)
		}
	}
	for line := range strings.SplitSeq(syntax, "\n") {
		if word, indented := strings.CutPrefix(line, "    "); indented {
			word, _, _ = strings.Cut(word, " ")
			if _, ok := config.Usages()[word]; !ok {
				t.Errorf("Expected no property %s in the syntax", word)
			}
		}
	}
}

// itemWords are the words that items of lists begin with: * `this`, `that` …
func itemWords(text string) (words []string) {
	for _, item := range regexp.MustCompile("(?m)^\\* `[a-z_ ]+`(, `[a-z_ ]+`)*").FindAllString(text, -1) {
		for _, m := range regexp.MustCompile("`([a-z_]+)").FindAllStringSubmatch(item, -1) {
			words = append(words, m[1])
		}
	}
	return words
}

func TestWordsThatMakeAnEngineAreInTheReadme(t *testing.T) {
	want := "`" + strings.Join(engine.Words(), "`, `") + "`"
	if !strings.Contains(strings.Join(strings.Fields(readme(t)), " "), want) {
		t.Errorf("Expected %s in one sentence", want)
	}
}

// described returns the metrics of this plugin, and their labels, by their names: those
// too that have no value yet.
func described(t *testing.T) map[string][]string {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		prometheus.DefaultRegisterer.(*prometheus.Registry).Describe(descs)
	}()
	all := make(map[string][]string)
	form := regexp.MustCompile(`fqName: "(coredns_safebrowsing_[^"]*)".* variableLabels: {([^}]*)}`)
	for desc := range descs {
		if m := form.FindStringSubmatch(desc.String()); m != nil {
			all[m[1]] = strings.Split(m[2], ",")
		}
	}
	return all
}

func TestMetricsAreAllInTheReadme(t *testing.T) {
	metrics := described(t)
	if len(metrics) < 14 {
		t.Fatalf("Expected to find the metrics, got %v", metrics)
	}
	for _, m := range regexp.MustCompile("`(coredns_safebrowsing_[a-z_]+)\\{([a-z_, ]*)\\}`").FindAllStringSubmatch(section(t, "Metrics"), -1) {
		labels, ok := metrics[m[1]]
		if want := strings.Join(labels, ", "); !ok || m[2] != want {
			t.Errorf("README has %s with the labels %q: Expected %q, and that there is such a metric", m[1], m[2], want)
		}
		delete(metrics, m[1])
	}
	for name := range metrics {
		t.Errorf("Expected %s in the README", name)
	}
}

// A family is linted when it has a value.
func TestMetricsAreWellNamed(t *testing.T) {
	w := frameWorld(t)
	w.start(w.corefile("block " + writeFile(t, t.TempDir(), "own.txt", "blocked.example\n")))
	w.updated(1)
	w.wantBlocked("frame.example.com.", dns.TypeA, phishing)
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "coredns_safebrowsing_") {
			continue
		}
		problems, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{family}).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v %v", family.GetName(), err, problems)
		}
	}
}

func TestWordsOfVerdictsAreInTheReadme(t *testing.T) {
	text := section(t, "Metrics")
	for d := range lookup.NumDeciders {
		if !strings.Contains(text, "`"+d.String()+"`") {
			t.Errorf("Expected %q among the values of decided_by", d)
		}
	}
}
