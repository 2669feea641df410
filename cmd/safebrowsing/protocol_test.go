package main

import (
	"strings"
	"testing"
)

func TestUpdateByVersion4AndOnByVersion5(t *testing.T) {
	w := newWorld(t)
	if status, out, errOut := w.update(t, "-protocol", "v4"); status != 0 || !strings.HasPrefix(out, "se-4b: updated, 2 entries") {
		t.Fatalf("status %d, %s%s", status, out, errOut)
	}
	if fetched, asked := len(w.Requests("fetch")), len(w.Requests("")); fetched != 1 || asked != 1 {
		t.Errorf("%d of %d requests by version 4", fetched, asked)
	}
	if status, out, errOut := invoke(t, "lists", "-db", w.dir); status != 0 || strings.Count(out, "verified") != 3 {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	status, out, errOut := invoke(t, "check", "-confirm", "-db", w.dir, "evil.example")
	if status != 1 || !strings.Contains(out+errOut, "only CoreDNS searches") || len(w.Requests("find")) != 0 {
		t.Errorf("status %d, %s%s; %d searches", status, out, errOut, len(w.Requests("find")))
	}
	w.ClientStarted()
	if status, out, errOut := w.update(t, "-protocol", "v4"); status != 0 || !strings.Contains(out, "nothing is due before ") {
		t.Errorf("by version 4 again: status %d, %s%s", status, out, errOut)
	}
	if status, out, errOut := w.update(t); status != 0 || !strings.Contains(out, "se-4b: unchanged, 2 entries") {
		t.Errorf("by version 5: status %d, %s%s", status, out, errOut)
	}
	if got := w.Requests("batchGet"); len(got) != 1 || len(got[0].Versions) != 3 {
		t.Errorf("requests of version 5: %+v, want one with all states", got)
	}
	if status, _, errOut := w.update(t, "-protocol", "v6"); status != 2 || !strings.Contains(errOut, `"v6" is not a protocol: the protocols are v5`) {
		t.Errorf("status %d, %q", status, errOut)
	}
}
