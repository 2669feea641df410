// Package version holds the version of this module, for the plugin and for its
// command line.
package version

// Number is the version of the plugin and of its command line. The server reads
// it in the User-Agent.
const Number = "0.1.0"
