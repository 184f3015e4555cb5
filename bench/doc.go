// Package bench measures ottla beside other clients of the same machine, in
// the same run. It is a module of its own, so that the peers are no
// dependencies of ottla.
//
//	go test -run '^$' -bench . -benchtime 1x ./...
package bench
