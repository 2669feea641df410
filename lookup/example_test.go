package lookup_test

import (
	"context"
	"fmt"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func ExampleHost_Expressions() {
	for _, expression := range lookup.FromQname("a.b.c.d.example.co.uk.").Expressions() {
		fmt.Println(expression)
	}
	// Output:
	// a.b.c.d.example.co.uk/
	// example.co.uk/
	// d.example.co.uk/
	// c.d.example.co.uk/
	// b.c.d.example.co.uk/
}

// badServer is a lookup.Searcher that knows one threat.
type badServer string

func (s badServer) Search(_ context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	var malware lookup.Threats
	answer := lookup.Answer{TTL: 5 * time.Minute}
	hash := lookup.HashExpression(string(s))
	for _, p := range prefixes {
		fmt.Printf("the server is asked for %x\n", p)
		if p == hash.Prefix(4) {
			threat := lookup.ThreatHash{Hash: hash, Threats: malware.With(lookup.Malware), TTL: 5 * time.Minute}
			answer.Threats = append(answer.Threats, threat)
		}
	}
	return answer, nil
}

func ExampleChecker() {
	// A list of one prefix of four bytes.
	prefix := lookup.HashExpression("example.com/").Prefix(4)
	builder := prefixset.NewBuilder(1)
	if err := builder.Add([]byte(prefix), len(prefix)); err != nil {
		fmt.Println(err)
		return
	}
	var database lookup.Database
	database.Publish([]lookup.List{{Name: "mw-4b", Set: builder.Set()}})

	checker, err := lookup.NewChecker(lookup.Config{Database: &database, Searcher: badServer("example.com/")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer checker.Close()

	for _, qname := range []string{"www.example.com.", "mail.example.com.", "example.org."} {
		decision, candidates := checker.Check(lookup.FromQname(qname))
		if candidates != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			decision = checker.Confirm(candidates, nil).Wait(ctx)
			cancel()
		}
		fmt.Printf("%s is %v by %v %v\n", qname, decision.Verdict, decision.By, decision.Threat)
	}
	// Output:
	// the server is asked for 73d986e0
	// www.example.com. is unsafe by server malware
	// mail.example.com. is unsafe by cache malware
	// example.org. is safe by list
}
