package main

import "testing"

func TestDnsperfIsRead(t *testing.T) {
	const output = `
Statistics:

  Queries sent:         131247
  Queries completed:    131240 (99.99%)
  Queries lost:         7 (0.01%)

  Response codes:       NOERROR 131200 (99.97%), SERVFAIL 40 (0.03%)
  Average packet size:  request 37, response 68
  Run time (s):         2.000961
  Queries per second:   65588.484733

  Average Latency (s):  0.001491 (min 0.000041, max 0.010290)
`
	got, err := parseFlood(output)
	if want := (flood{answered: 131240, lost: 7, rate: 65588.484733, good: 99.97}); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "Queries completed: 1", output[:len(output)/2]} {
		if _, err := parseFlood(bad); err == nil {
			t.Errorf("no error about %q", bad)
		}
	}
}
