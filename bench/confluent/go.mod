module github.com/ottla/ottla/bench/confluent

go 1.26.0

require (
	github.com/confluentinc/confluent-kafka-go/v2 v2.11.1
	github.com/ottla/ottla v0.0.0
	github.com/ottla/ottla/bench v0.0.0
)

replace (
	github.com/ottla/ottla => ../..
	github.com/ottla/ottla/bench => ..
)
