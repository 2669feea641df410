package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// In the real server, over each transport and for each size that clients take.
func TestStructuredErrorsOverEveryTransport(t *testing.T) {
	asks := transports(t, blockList(t, "blocked.example")+"\nstructured 65010 mailto:help@example.org")
	for transport, ask := range asks {
		for _, size := range []uint16{512, 1232} {
			t.Run(fmt.Sprint(transport, size), func(t *testing.T) {
				m := new(dns.Msg).SetQuestion(strings.Repeat(strings.Repeat("a", 49)+".", 3)+"blocked.example.", dns.TypeA)
				m.SetEdns0(size, false)
				m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65010}}
				answer, err := ask(m)
				if err != nil {
					t.Fatal(err)
				}
				text, blocked := ede(answer)
				if want := `{"c":["mailto:help@example.org"],"j":"blocklist own.txt","s":6,"l":"en"}`; !blocked || answer.Truncated || text != want {
					t.Errorf("Got %q in\n%v", text, answer)
				}
			})
		}
	}
}
