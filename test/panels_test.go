package test

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
)

// A dashboardPanel is what Grafana calls a panel.
type dashboardPanel struct {
	Title, Description, Type string
	Targets                  []struct{ Expr, LegendFormat string }
	Options                  struct{ TextMode string }
	FieldConfig              struct{ Defaults struct{ Unit string } }
}

func dashboardPanels(t *testing.T) []dashboardPanel {
	t.Helper()
	raw, err := fs.ReadFile(repository, "deploy/grafana/safebrowsing.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct{ Panels []dashboardPanel }
	if err := json.Unmarshal(raw, &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}

// Grafana shows a stat of one series without its name, unless textMode asks for it: a version
// would be a number without a version.
func TestStatsOfTheDashboardNameTheirSeries(t *testing.T) {
	for _, p := range dashboardPanels(t) {
		if p.Type == "stat" && p.Targets[0].LegendFormat != "" && p.Options.TextMode != "value_and_name" {
			t.Errorf("%s: Expected textMode value_and_name, got %q", p.Title, p.Options.TextMode)
		}
	}
}

// One axis has one unit. Counters and gauges have their unit in their names.
func TestQueriesOfAPanelHaveItsUnit(t *testing.T) {
	metrics := map[string]string{"s": "_seconds", "Bps": "_bytes_total", "reqps": "_total"}
	tried := 0
	for _, p := range dashboardPanels(t) {
		unit := p.FieldConfig.Defaults.Unit
		for _, target := range p.Targets {
			if !strings.Contains(target.Expr, metrics[unit]) {
				t.Errorf("%s: Expected a metric in %s, got %s", p.Title, unit, target.Expr)
			}
			if metrics[unit] != "" {
				tried++
			}
		}
	}
	if tried < 10 {
		t.Errorf("Expected panels with units, got %d queries", tried)
	}
}

// While all suspected names are confirmed there is no series of unsure ones. That is 0 %, and
// not "No data", which would look like a server that is not asked.
func TestNotConfirmedIsZeroWhileAllIsConfirmed(t *testing.T) {
	folder := t.TempDir()
	for _, p := range dashboardPanels(t) {
		if p.Title != "Not confirmed" {
			continue
		}
		expr := strings.NewReplacer("$instance", ".*", "$__rate_interval", "5m").Replace(p.Targets[0].Expr)
		rule, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panel", "rules": []any{map[string]string{"record": "panel", "expr": expr}}}}})
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, folder, "panel.yml", string(rule))
	}
	promtool(t, "test", "rules", writeFile(t, folder, "test.yml", `rule_files: [panel.yml]
tests:
  - interval: 1m
    input_series:
      - series: 'coredns_safebrowsing_verdicts_total{instance="a", verdict="safe", decided_by="server"}'
        values: 0+6x10
      - series: 'coredns_safebrowsing_verdicts_total{instance="b", verdict="safe", decided_by="server"}'
        values: 0+6x10
      - series: 'coredns_safebrowsing_verdicts_total{instance="b", verdict="unsure", decided_by="timeout"}'
        values: 0+2x10
    promql_expr_test:
      - expr: panel
        eval_time: 10m
        exp_samples:
          - {labels: 'panel{instance="a"}', value: 0}
          - {labels: 'panel{instance="b"}', value: 0.25}
`))
}
