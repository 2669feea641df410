package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestDoctorSaysWhatARelayCosts(t *testing.T) {
	costs := relay.Costs{Since: time.Now().Add(-36 * time.Hour), Searches: 800, Reasons: map[string]int{"new": 300, "expired": 400, "popular": 100},
		Dollars: 40, Month: 811, Today: []relay.Dear{{Prefix: "9fe5666e", Searches: 24}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/costs" {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(costs)
	}))
	defer server.Close()
	status, out, errOut := invoke(t, "doctor", "-admin", strings.TrimPrefix(server.URL, "http://"))
	for _, want := range []string{"800 searches (300 new, 400 expired, 100 popular)", "40.00 US-$, at this rate 811 US-$ a month", "9fe5666e 24 (1.20 US-$)"} {
		if !strings.Contains(out, want) {
			t.Errorf("Expected %q, got %s", want, out)
		}
	}
	if status != 0 || errOut != "" {
		t.Errorf("Expected no complaint, got status %d, %s", status, errOut)
	}
	costs.Today = nil
	if status, out, _ := invoke(t, "doctor", "-json", "-admin", strings.TrimPrefix(server.URL, "http://")); status != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("Expected one check, got status %d, %s", status, out)
	}
	for name, address := range map[string]string{"dead": testkit.FreeAddr(t), "no relay": strings.TrimPrefix(server.URL, "http://") + "/x", "no address": "a b"} {
		if status, out, _ := invoke(t, "doctor", "-admin", address); status != 1 || !strings.Contains(out, "cannot be asked") {
			t.Errorf("%s: Expected a problem, got status %d, %s", name, status, out)
		}
	}
}
