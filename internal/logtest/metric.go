package logtest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Metric returns the sum of the samples of a family of the plugin that have a label.
func Metric(t testing.TB, name, label, value string) (sum float64) {
	t.Helper()
	each(t, name, label, value, func(m *dto.Metric) { sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() })
	return sum
}

// Count returns how many samples of a family of the plugin have a label.
func Count(t testing.TB, name, label, value string) (n int) {
	t.Helper()
	each(t, name, label, value, func(*dto.Metric) { n++ })
	return n
}

// each calls f with each sample of a family of the plugin that has a label.
func each(t testing.TB, name, label, value string, f func(*dto.Metric)) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "coredns_safebrowsing_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && l.GetValue() == value {
					f(m)
				}
			}
		}
	}
}
