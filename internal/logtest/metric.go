package logtest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric returns the sum of the samples of a family of the plugin that have a label.
func Metric(t testing.TB, name, label, value string) (sum float64) {
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
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}
