package meta

import "errors"

var errNoBrokers = errors.New("the metadata answer names no broker")
