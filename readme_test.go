package safebrowsing

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// corefiles are the blocks of the README that are Corefiles, and the example.
func corefiles(t *testing.T) (all []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?s)~~~ corefile\n(.*?)~~~`).FindAllStringSubmatch(readme(t), -1) {
		all = append(all, m[1])
	}
	example, err := os.ReadFile("Corefile.example")
	if err != nil {
		t.Fatal(err)
	}
	return append(all, string(example))
}

func TestCorefilesOfTheDocumentsAreAccepted(t *testing.T) {
	key := writeFile(t, t.TempDir(), "key", "K")
	resolv := writeFile(t, t.TempDir(), "resolv.conf", "nameserver 192.0.2.53\n")
	replacer := strings.NewReplacer("/etc/coredns/safebrowsing.key", key, "/etc/resolv.conf", resolv)
	all := corefiles(t)
	if len(all) < 5 {
		t.Fatalf("Expected to find the Corefiles of the README, got %d", len(all))
	}
	for _, corefile := range all {
		if err := caddy.ValidateAndExecuteDirectives(input(replacer.Replace(corefile)), nil, true); err != nil {
			t.Errorf("%v in\n%s", err, corefile)
		}
	}
}

func TestEveryPropertyIsInTheReadme(t *testing.T) {
	_, syntax, _ := strings.Cut(readme(t), "## Syntax")
	syntax, explained, _ := strings.Cut(syntax, "\n~~~\n")
	for word, property := range properties {
		if line := strings.TrimRight("    "+word+" "+property.usage, " ") + "\n"; !strings.Contains(syntax+"\n", line) {
			t.Errorf("Expected the line %q in the syntax", line)
		}
		if !strings.Contains(explained, "`"+word+"`") && !strings.Contains(explained, "`"+word+" ") {
			t.Errorf("Expected %s to be explained", word)
		}
	}
}

func TestMetricsAreWellNamedAndAllInTheReadme(t *testing.T) {
	verdictsTotal.WithLabelValues("s", "", "safe", "list")
	blockedTotal.WithLabelValues("s", "", "l")
	frameOnlyTotal.WithLabelValues("s", "", "blocked")
	requestsTotal.WithLabelValues("fetch", "success")
	requestDuration.WithLabelValues("fetch")
	listGauges.set(settings{}, updater.Event{List: "l"})
	searchNotBefore.WithLabelValues(settings{}.labels()...)
	defer listGauges.forget(settings{}, "l")
	defer searchNotBefore.DeleteLabelValues(settings{}.labels()...)
	own, err := (&config{own: []ownFile{{path: "README.md"}}}).openOwn()
	if err != nil {
		t.Fatal(err)
	}
	defer closeOwn(own)
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile("`(coredns_safebrowsing_[a-z_]+)\\{([a-z_, ]*)\\}`").FindAllStringSubmatch(readme(t), -1)
	var names []string
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "coredns_safebrowsing_") {
			continue
		}
		problems, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{family}).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v %v", family.GetName(), err, problems)
		}
		var labels []string
		for _, l := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		names = append(names, family.GetName()+strings.Join(labels, ","))
	}
	var inReadme []string
	for _, m := range documented {
		labels := strings.Split(m[2], ", ")
		slices.Sort(labels)
		inReadme = append(inReadme, m[1]+strings.Join(labels, ","))
	}
	slices.Sort(names)
	slices.Sort(inReadme)
	if !slices.Equal(names, inReadme) {
		t.Errorf("Expected the README to have the metrics\n%v, got\n%v", names, inReadme)
	}
}

func TestWordsOfVerdictsAreInTheReadme(t *testing.T) {
	_, section, _ := strings.Cut(readme(t), "## Metrics")
	for d := range lookup.NumDeciders {
		if !strings.Contains(section, "`"+d.String()+"`") {
			t.Errorf("Expected %q among the values of decided_by", d)
		}
	}
}
