package sharing

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, url string
		want      Target
		text      string
	}{
		{"a server", "redis://cache", Target{Addresses: []string{"cache:6379"}}, "cache:6379"},
		{"port and database", "redis://192.0.2.1:7000/3", Target{Addresses: []string{"192.0.2.1:7000"}, DB: 3}, "192.0.2.1:7000"},
		{"IPv6", "redis://[2001:db8::1]:7000", Target{Addresses: []string{"[2001:db8::1]:7000"}}, "[2001:db8::1]:7000"},
		{"TLS and a user", "rediss://relay@cache/", Target{TLS: true, User: "relay", Addresses: []string{"cache:6379"}}, "cache:6379"},
		{"a password", "redis://relay:a%2Fb%40c@cache", Target{User: "relay", Password: "a/b@c", Addresses: []string{"cache:6379"}}, "cache:6379"},
		{"a password without a user", "redis://:a@b@cache", Target{Password: "a@b", Addresses: []string{"cache:6379"}}, "cache:6379"},
		{"Valkey", "valkeys://cache", Target{TLS: true, Addresses: []string{"cache:6379"}}, "cache:6379"},
		{"Sentinels", "redis+sentinel://a,b:7000/main/2", Target{Kind: Sentinel, Addresses: []string{"a:26379", "b:7000"}, Master: "main", DB: 2}, "master main of the Sentinels a:26379, b:7000"},
		{"a cluster", "rediss+cluster://a,b:7000", Target{Kind: Cluster, TLS: true, Addresses: []string{"a:6379", "b:7000"}}, "cluster a:6379, b:7000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.url)
			if err != nil || !reflect.DeepEqual(got, tt.want) || got.String() != tt.text {
				t.Errorf("Expected %+v (%s), got %+v (%s), %v", tt.want, tt.text, got, got, err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, url, want string }{
		{"no scheme", "s3cret@cache:6379", "must begin with redis://"},
		{"another scheme", "http://:s3cret@cache", "must begin with redis://"},
		{"no host", "redis://:s3cret@", "an address that is not HOST"},
		{"a slash in the password", "redis://:s3cret/x@cache", "write / as %2F"},
		{"a question mark in the password", "redis://:s3cret?x@cache", "write them as %3F"},
		{"a bad escape", "redis://:s3cret%zz@cache", "hexadecimal"},
		{"port 0", "redis://:s3cret@cache:0", "a port"},
		{"two servers", "redis://:s3cret@a,b", "several addresses"},
		{"a database that is a word", "redis://:s3cret@cache/s3cret", "not a number"},
		{"Sentinels without a master", "redis+sentinel://:s3cret@a,b", "does not name the master"},
		{"a database of a cluster", "redis+cluster://:s3cret@a/1", "only database 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(tt.url)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("Expected an error with %q and no part of the URL, got %v", tt.want, err)
			}
		})
	}
}
