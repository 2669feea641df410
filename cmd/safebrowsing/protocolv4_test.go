package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestUpdateByVersion4AndOnByVersion5(t *testing.T) {
	w := newWorld(t)
	w.wantUpdateOn(t, "v4", "fetch", 1, "unchanged", 3) // one request with the states of all
	w.update(t, "-protocol", "v6").want(2, `"v6" is not a protocol: the protocols are v5`)
}

func TestDoctorTellsOfTheEndOfVersion4(t *testing.T) {
	w := newWorld(t)
	const v4 = ". {\n safebrowsing {\n  protocol v4\n  api_key K\n  db DB\n%s }\n}\n"
	_, found, _ := examine(t, w.corefile(t, fmt.Sprintf(v4, "")), "-offline")
	testkit.WantParts(t, string(found["protocol"].Text), "Safe Browsing v4 on 31 March 2027")
	expect(t, "advice", found["protocol"].Advice, "Change protocol v4 to v5")
	_, found, _ = examine(t, w.corefile(t, fmt.Sprintf(v4, "  endpoint ENDPOINT\n")), "-offline")
	expect(t, "of a server of one's own", found["protocol"], diagnosis{})
	end := protocol.DialectV4.EndingAt("")
	for at, want := range map[time.Time]string{end.At.Add(-time.Second): isWarning, end.At: isProblem} {
		wantIs(t, endingDiagnosis(end, at), want)
	}
}

func init() { protocolsOfOthers = append(protocolsOfOthers, "protocol v4\n") }
