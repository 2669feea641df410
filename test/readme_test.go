package test

import (
	"io/fs"
	"path"
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
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// reference is the page that has all properties and metrics.
const reference = "docs/corefile.md"

// section returns a section of the reference, without its heading.
func section(t *testing.T, heading string) string { return sectionOf(t, reference, heading) }

// sectionOf returns a section of a document, without its heading.
func sectionOf(t *testing.T, document, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(documents(t)[document], "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("Expected %s to have a section %s", document, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// Whoever reads the README has never heard of the plugin.
func TestTheReadmeIsForAStranger(t *testing.T) {
	if n := len(strings.Fields(documents(t)["README.md"])); n > 1800 {
		t.Errorf("Expected at most 1,800 words, got %d: move what goes deeper to docs", n)
	}
	for _, terms := range []string{"Safe Browsing is for non-commercial use", "Not made or endorsed by Google or by the CoreDNS project."} {
		if !strings.Contains(documents(t)["README.md"], terms) {
			t.Errorf("Expected the README to say: %s", terms)
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)`").FindAllStringSubmatch(sectionOf(t, "README.md", "Configure it"), -1)
	for _, m := range rows {
		if _, ok := config.Usages()[m[1]]; !ok {
			t.Errorf("Expected no property %s", m[1])
		}
	}
	if len(rows) != 8 {
		t.Errorf("Expected eight properties, got %d", len(rows))
	}
}

// The README and the eleven pages of an operator are short. A page about one task (which clients
// leave, what is caught, a provider, moving here, why this) is short itself.
func TestTheDocumentsAreFewAndShort(t *testing.T) {
	words, pages := 0, 0
	for name, text := range documents(t) {
		switch n := len(strings.Fields(text)); {
		case slices.Contains([]string{"docs/clients.md", "docs/coverage.md", "docs/provider.md", "docs/migrate.md", "docs/comparison.md"}, name):
			if n > 1_200 {
				t.Errorf("Expected at most 1,200 words in %s, got %d", name, n)
			}
		case strings.HasPrefix(name, "docs/"), name == "README.md":
			words, pages = words+n, pages+1
		}
	}
	if words > 16_000 || pages > 12 {
		t.Errorf("Expected at most 16,000 words in 12 pages, got %d in %d", words, pages)
	}
}

// A property is explained by an item of the list after the syntax, or by one of a
// page that this list links to.
func TestEveryPropertyIsInTheReference(t *testing.T) {
	syntax, list, _ := strings.Cut(section(t, "Syntax"), "\n~~~\n")
	explained := itemWords(list)
	for _, m := range regexp.MustCompile(`\]\(([a-z0-9-]+\.md)`).FindAllStringSubmatch(list, -1) {
		explained = append(explained, itemWords(documents(t)["docs/"+m[1]])...)
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

func TestWordsThatMakeAnEngineAreInTheReference(t *testing.T) {
	want := "`" + strings.Join(engine.Words(), "`, `") + "`"
	if !strings.Contains(strings.Join(strings.Fields(documents(t)[reference]), " "), want) {
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

func TestMetricsAreAllInTheReference(t *testing.T) {
	metrics := described(t)
	if len(metrics) < 14 {
		t.Fatalf("Expected to find the metrics, got %v", metrics)
	}
	for _, m := range regexp.MustCompile("`(coredns_safebrowsing_[a-z_]+)\\{([a-z_, ]*)\\}`").FindAllStringSubmatch(section(t, "Metrics"), -1) {
		labels, ok := metrics[m[1]]
		if want := strings.Join(labels, ", "); !ok || m[2] != want {
			t.Errorf("docs/corefile.md has %s with the labels %q: Expected %q, and that there is such a metric", m[1], m[2], want)
		}
		delete(metrics, m[1])
	}
	for name := range metrics {
		t.Errorf("Expected %s in docs/corefile.md", name)
	}
}

// A family is linted when it has a value.
func TestMetricsAreWellNamed(t *testing.T) {
	w := frameWorld(t)
	w.start(w.corefile("block " + writeFile(t, t.TempDir(), "own.txt", "blocked.example\n")))
	w.updated(1)
	w.wantBlocked("frame.example.com.", dns.TypeA, phishing)
	families, err := prometheus.DefaultGatherer.Gather()
	testkit.Must(t, err)
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

func TestWordsOfVerdictsAreInTheReference(t *testing.T) {
	text := section(t, "Metrics")
	for d := range lookup.NumDeciders {
		if !strings.Contains(text, "`"+d.String()+"`") {
			t.Errorf("Expected %q among the values of decided_by", d)
		}
	}
}

// listing is the plugin's page for https://coredns.io/explugins.
const listing = "deploy/coredns.io/safebrowsing.md"

// The page is read at another place: its links are whole URLs. What it says of properties and
// metrics is what docs/corefile.md says.
func TestThePageForCoreDNSAgreesWithTheReference(t *testing.T) {
	head, text, _ := strings.Cut(documents(t)[listing], "\n+++\n")
	repo := regexp.MustCompile(`(?m)^repo = "(https://.+)"$`).FindStringSubmatch(head)
	if repo == nil {
		t.Fatal("Expected the page to begin with fields between two lines of +++")
	}
	syntax := strings.Split(section(t, "Syntax"), "\n")
	for line := range strings.SplitSeq(blocks(text, "txt")[0], "\n") {
		if !slices.Contains(syntax, line) {
			t.Errorf("Expected the line %q in the syntax of docs/corefile.md", line)
		}
	}
	for _, metric := range regexp.MustCompile("`coredns_[^`]+`").FindAllString(text, -1) {
		if !strings.Contains(section(t, "Metrics"), metric) {
			t.Errorf("Expected %s in docs/corefile.md", metric)
		}
	}
	links := regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1)
	for _, m := range links {
		target, ok := strings.CutPrefix(m[1], repo[1]+"/blob/main/")
		file, anchor, _ := strings.Cut(target, "#")
		page := documents(t)[path.Clean(file)]
		if !ok || page == "" || anchor != "" && !slices.Contains(anchors(page), anchor) {
			t.Errorf("Expected a URL of a document of the repository, got %s", m[1])
		}
	}
	if len(links) < 3 || !strings.Contains(text, "\nsafebrowsing:"+strings.TrimPrefix(repo[1], "https://")+"\ncache:cache\n") {
		t.Error("Expected links to the documents, and the line of plugin.cfg before cache")
	}
}

// Each task that a document names is in the Makefile, with a line for "make help".
func TestTasksOfTheDocumentsExist(t *testing.T) {
	makefile, err := fs.ReadFile(repository, "Makefile")
	testkit.Must(t, err)
	tasks := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):(.*)$`).FindAllStringSubmatch(string(makefile), -1) {
		tasks[m[1]] = true
		if !strings.HasPrefix(m[2], " ## ") {
			t.Errorf("Expected %s to have a line for make help, got %q", m[1], m[2])
		}
	}
	tried := 0
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z]+(?:-[a-z]+)*)").FindAllStringSubmatch(text, -1) {
			if tried++; !tasks[m[1]] {
				t.Errorf("%s: expected a task %s in the Makefile", name, m[1])
			}
		}
	}
	if tried < 3 {
		t.Errorf("Expected the documents to name tasks, got %d", tried)
	}
}

// The recipes name files that exist: rooms are moved. Names of tests: TestNamesOfTestsInTheDocumentsExist.
func TestRecipesNameWhatExists(t *testing.T) {
	_, recipes, ok := strings.Cut(documents(t)["CONTRIBUTING.md"], "\n## Recipes\n")
	if !ok {
		t.Fatal("Expected recipes")
	}
	tried := 0
	for _, m := range regexp.MustCompile("`([a-zA-Z_./]+\\.go|\\.ci/[a-z]+)`").FindAllStringSubmatch(recipes, -1) {
		tried++
		if _, err := fs.Stat(repository, m[1]); err != nil {
			t.Errorf("Expected a file, got %v", err)
		}
	}
	if tried < 12 {
		t.Errorf("Expected the recipes to name files and tests, got %d", tried)
	}
}
