// Package realkafka starts a real Apache Kafka for tests and for people, from
// Maven artifacts alone: no Docker, no Kafka download. It needs Java and, for
// the first start of a version, Maven and a way to Maven Central.
//
// Tests (build tag kafka) use Start for a cluster of one test and Run for a
// cluster of a package. scripts/kafka uses Up, Open and the methods of Cluster
// through the program in kafkactl. One implementation serves both.
//
// The jars are cached outside the tree, one folder a version, below the user's
// cache folder. A missing Java or Maven is an error that names the command that
// installs it, never a skipped test.
//
// The package asks its brokers whether they are ready in Kafka's protocol over
// plain TCP connections of its own. It imports nothing of the library under
// test, so that no fault of the library can hide here.
package realkafka
