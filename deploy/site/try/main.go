//go:build js && wasm

// Command try is what the page "Try it" of the web site runs: it computes in the browser what the
// plugin would look up for a name or a URL, by the plugin's own package.
package main

import (
	"encoding/hex"
	"syscall/js"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func main() {
	js.Global().Set("expressionsOf", js.FuncOf(func(_ js.Value, args []js.Value) any { return expressionsOf(args[0].String()) }))
	js.Global().Call("dispatchEvent", js.Global().Get("Event").New("lookup"))
	select {} // the page calls from now on
}

// expressionsOf returns the expressions of a name or a URL, or an error.
func expressionsOf(text string) map[string]any {
	u, err := lookup.ParseURL(text)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	all := []any{}
	for _, x := range u.Expressions(lookup.RuleV5) {
		hash := lookup.HashExpression(x.Text)
		all = append(all, map[string]any{"text": x.Text, "sum": hex.EncodeToString(hash[:]), "dns": x.DNS})
	}
	return map[string]any{"host": u.Host().String(), "public": u.Host().Public(), "expressions": all}
}
