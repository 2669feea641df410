package main

import (
	"errors"
	"fmt"

	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlValues calls back for each value of a file in TOML, and for each one in an array, in their order.
// key is with the names of its tables, such as "dns.upstreams".
func tomlValues(raw []byte, each func(key string, line int, text string)) error {
	var p unstable.Parser
	p.Reset(raw)
	named := func(parts unstable.Iterator) (key string, line int) {
		for parts.Next() {
			part := parts.Node()
			if key != "" {
				key += "."
			}
			key, line = key+string(part.Data), p.Shape(part.Raw).Start.Line
		}
		return key, line
	}
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		key, line := named(e.Key())
		if e.Kind != unstable.KeyValue {
			table = key + "."
			continue
		}
		value := func(v *unstable.Node) {
			at := line // of a number or a boolean, which has no place of its own
			if v.Raw.Length > 0 {
				at = p.Shape(v.Raw).Start.Line
			}
			each(table+key, at, string(v.Data))
		}
		v := e.Value()
		if v.Kind != unstable.Array {
			value(v)
			continue
		}
		for all := v.Children(); all.Next(); {
			value(all.Node())
		}
	}
	err := p.Error()
	if wrong, ok := errors.AsType[*unstable.ParserError](err); ok {
		return fmt.Errorf("this is not what pihole-FTL writes: line %d: %w", p.Shape(p.Range(wrong.Highlight)).Start.Line, err)
	}
	return err
}
