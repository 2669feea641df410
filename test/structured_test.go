package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// In the real server, over each transport and for each size that clients take. Who asks by another option gets
// plain text.
func TestStructuredErrorsOverEveryTransport(t *testing.T) {
	asks := transports(t, blockList(t, "blocked.example")+"\nstructured 65010 mailto:help@example.org")
	for transport, ask := range asks {
		for _, size := range []uint16{512, 1232} {
			t.Run(fmt.Sprint(transport, size), func(t *testing.T) {
				m := new(dns.Msg).SetQuestion(strings.Repeat(strings.Repeat("a", 49)+".", 3)+"blocked.example.", dns.TypeA)
				m.SetEdns0(size, false)
				for code, want := range map[uint16]string{65010: `{"c":["mailto:help@example.org"],"j":"blocklist own.txt","s":6,"l":"en"}`, 65011: byOwn} {
					m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: code}}
					answer, err := ask(m)
					if err != nil {
						t.Fatal(err)
					}
					if text, blocked := ede(answer); !blocked || answer.Truncated || text != want {
						t.Errorf("%d: got %q in\n%v", code, text, answer)
					}
				}
			})
		}
	}
}
