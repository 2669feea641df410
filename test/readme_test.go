package test

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
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

func section(t *testing.T, heading string) string { return sectionOf(t, reference, heading) }

func sectionOf(t testing.TB, document, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(documents(t)[document], "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("Expected %s to have a section %s", document, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// Whoever reads the README has never heard of the plugin. It and the eleven pages of an operator are short. A page
// about one task (which clients leave, what is caught, a provider, moving here, why this) is short itself.
func TestTheDocumentsAreFewAndShort(t *testing.T) {
	words, pages := 0, 0
	for name, text := range documents(t) {
		most, n := 16_000, len(strings.Fields(text))
		switch {
		case slices.Contains([]string{"docs/clients.md", "docs/coverage.md", "docs/provider.md", "docs/migrate.md", "docs/comparison.md"}, name):
			most = 1_200
		case strings.HasPrefix(name, "docs/"):
			words, pages = words+n, pages+1
		case name == "README.md":
			words, pages, most = words+n, pages+1, 1_800
		default:
			continue
		}
		testkit.Between(t, "words in "+name, n, 1, most)
	}
	testkit.Between(t, "words in all pages", words, 1, 16_000)
	testkit.Between(t, "pages", pages, 1, 12)
	testkit.WantParts(t, documents(t)["README.md"], "Safe Browsing is for non-commercial use",
		"Not made or endorsed by Google or by the CoreDNS project.")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)`").FindAllStringSubmatch(sectionOf(t, "README.md", "Configure it"), -1) {
		wantProperty(t, "README.md", m[1])
	}
}

func wantProperty(t *testing.T, page, word string) {
	t.Helper()
	_, ok := config.Usages()[word]
	testkit.Equal(t, page+": there is a property "+word, ok, true)
}

// A property is explained by an item of the list after the syntax, or by one of a page that this list links to.
func TestEveryPropertyIsInTheReference(t *testing.T) {
	syntax, list, _ := strings.Cut(section(t, "Syntax"), "\n~~~\n")
	explained := itemWords(list)
	for _, m := range regexp.MustCompile(`\]\(([a-z0-9-]+\.md)`).FindAllStringSubmatch(list, -1) {
		explained = append(explained, itemWords(documents(t)["docs/"+m[1]])...)
	}
	for word, usage := range config.Usages() {
		testkit.WantParts(t, syntax+"\n", strings.TrimRight("    "+word+" "+usage, " ")+"\n")
		testkit.Equal(t, word+" is explained", slices.Contains(explained, word), true)
	}
	for line := range strings.SplitSeq(syntax, "\n") {
		if word, indented := strings.CutPrefix(line, "    "); indented {
			word, _, _ = strings.Cut(word, " ")
			wantProperty(t, reference, word)
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
	sentence := "`" + strings.Join(engine.Words(), "`, `") + "`"
	testkit.WantParts(t, strings.Join(strings.Fields(documents(t)[reference]), " "), sentence)
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
	found(t, "metrics", len(metrics), 14)
	inReference := make(map[string][]string)
	for _, m := range regexp.MustCompile("`(coredns_safebrowsing_[a-z_]+)\\{([a-z_, ]*)\\}`").FindAllStringSubmatch(section(t, "Metrics"), -1) {
		inReference[m[1]] = strings.Split(m[2], ", ")
	}
	testkit.Equal(t, "metrics of docs/corefile.md, with labels", inReference, metrics)
}

// A family is linted when it has a value.
func TestMetricsAreWellNamed(t *testing.T) {
	w := frameWorld(t)
	w.run("block " + writeFile(t, t.TempDir(), "own.txt", "blocked.example\n"))
	w.wantBlocked("frame.example.com.", dns.TypeA, phishing)
	families, err := prometheus.DefaultGatherer.Gather()
	testkit.Must(t, err)
	foreign := func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "coredns_safebrowsing_") }
	families = slices.DeleteFunc(families, foreign)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	testkit.Must(t, err)
	testkit.Equal(t, "problems", problems, nil)
}

func TestWordsOfVerdictsAreInTheReference(t *testing.T) {
	text := section(t, "Metrics")
	for d := range lookup.NumDeciders {
		testkit.WantParts(t, text, "`"+d.String()+"`")
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
	for line := range strings.SplitSeq(blocks(text, "txt")[0], "\n") {
		testkit.WantParts(t, section(t, "Syntax"), "\n"+line+"\n")
	}
	for _, metric := range regexp.MustCompile("`coredns_[^`]+`").FindAllString(text, -1) {
		testkit.WantParts(t, section(t, "Metrics"), metric)
	}
	needs := "CoreDNS " + regexp.MustCompile(`github\.com/coredns/coredns v(\d+\.\d+)`).FindStringSubmatch(file(t, "go.mod"))[1]
	testkit.WantParts(t, documents(t)["README.md"], needs)
	testkit.WantParts(t, text, needs, "\nsafebrowsing:"+strings.TrimPrefix(repo[1], "https://")+"\ncache:cache\n")
	links := regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1)
	for _, m := range links {
		target, ok := strings.CutPrefix(m[1], repo[1]+"/blob/main/")
		file, anchor, _ := strings.Cut(target, "#")
		page := documents(t)[path.Clean(file)]
		if !ok || page == "" || anchor != "" && !slices.Contains(anchors(page), anchor) {
			t.Errorf("Expected a URL of a document of the repository, got %s", m[1])
		}
	}
	found(t, "links to the documents", len(links), 3)
}

// Each task that a document names is in the Makefile.
func TestTasksOfTheDocumentsExist(t *testing.T) {
	tried, makefile := 0, file(t, "Makefile")
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z]+(?:-[a-z]+)*)").FindAllStringSubmatch(text, -1) {
			tried++
			testkit.Equal(t, name+": the Makefile has "+m[1], strings.Contains(makefile, "\n"+m[1]+":"), true)
		}
	}
	found(t, "tasks in the documents", tried, 3)
}

// tableOf returns the rows of the first table after a text, by cells, the heading first.
func tableOf(t *testing.T, document, after string) (rows [][]string) {
	t.Helper()
	_, text, _ := strings.Cut(documents(t)[document], after)
	for line := range strings.Lines(regexp.MustCompile(`(?m)(^\|.*\n)+`).FindString(text)) {
		row := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		rows = append(rows, row)
	}
	if len(rows) < 4 {
		t.Fatalf("Expected a table in %s after %q, got %v", document, after, rows)
	}
	return slices.Delete(rows, 1, 2) // the line below the heading
}

// The figures of the comparison are those that the command of the bench has printed.
func TestFiguresOfTheComparisonAreThoseOfTheBench(t *testing.T) {
	testkit.WantParts(t, "\n"+strings.Join(shellLines(documents(t)["docs/comparison.md"]), "\n"), "\ngo -C bench run . -only peers ")
	of := func(name string) (figures []float64) { // queries of a core and second, forwarded and cached, and MiB
		for _, row := range tableOf(t, "bench/README.md", "`go -C bench run . -only peers`):\n")[1:] {
			for _, cell := range row[1:4] {
				number, _, _ := strings.Cut(strings.ReplaceAll(cell, ",", ""), " ")
				if value, err := strconv.ParseFloat(number, 64); err == nil && strings.HasPrefix(row[0], name) {
					figures = append(figures, value)
				}
			}
		}
		found(t, "figures of "+name+" in the table of the bench", len(figures), 3)
		return figures
	}
	rows := tableOf(t, "docs/comparison.md", "\n")
	ours, tried := of("this plugin"), 0
	for _, row := range rows[1:] {
		kind := slices.Index([]string{"CPU time of a forwarded query", "CPU time of a cached query", "memory with a million names"}, row[0])
		if kind < 0 {
			continue
		}
		for _, name := range []string{"this plugin", "AdGuard Home", "blocky", "Unbound"} {
			tried++
			want := fmt.Sprintf("%.0f MiB", of(name)[kind%3])
			if kind < 2 {
				want = fmt.Sprintf("%.1f times", ours[kind]/of(name)[kind])
			}
			if want == "1.0 times" && name == "this plugin" {
				want = "1"
			}
			column := slices.IndexFunc(rows[0], func(h string) bool { return strings.HasPrefix(h, name) })
			testkit.Equal(t, row[0]+", "+name+": as in bench/README.md", row[column], want)
		}
	}
	testkit.Equal(t, "figures", tried, 12)
}

// A cell about others says where it is from, one about us where that is held. The last two rows are against us.
func TestTheComparisonHasASourceForEachCell(t *testing.T) {
	rows := tableOf(t, "docs/comparison.md", "\n")
	defined := regexp.MustCompile(`(?m)^\[([a-z0-9-]+)\]: https://\S+$`).FindAllString(documents(t)["docs/comparison.md"], -1)
	figure := regexp.MustCompile(`^[0-9.]+( times| MiB)?$`)
	for n, row := range rows[1:] {
		testkit.Equal(t, row[0]+": it is against us", strings.HasPrefix(row[0], "**"), n >= len(rows)-3)
		testkit.Equal(t, row[0]+": cells", len(row), len(rows[0]))
		for i, cell := range row[1:] {
			sources := regexp.MustCompile(`\]\[([a-z0-9-]+)\]`).FindAllStringSubmatch(cell, -1)
			for _, m := range sources { // each has an address
				testkit.WantParts(t, "\n"+strings.Join(defined, "\n"), "\n["+m[1]+"]: ")
			}
			nothing := i > 0 && slices.Contains([]string{"–", "not seen", "no DNS", "none"}, cell) // what is not there has no source
			if len(sources) == 0 && !strings.Contains(cell, "](") && !figure.MatchString(cell) && !nothing {
				t.Errorf("%s: Expected a source for %q", row[0], cell)
			}
		}
	}
}
