// Package conn holds the rules of one connection to a broker as machines over
// bytes and times: frames, correlation of answers, header versions, version
// negotiation, the ApiVersions and SASL scripts, re-authentication, throttling
// and request clocks. It has no socket, no clock and no goroutine: time and
// randomness are arguments, and package netconn carries its decisions out.
package conn
