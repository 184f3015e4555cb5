package realkafka

import (
	"fmt"
	"strings"
)

// artifact is one dependency of the pom.
type artifact struct {
	group, name, version string
	without              []string // group:name of what it must not bring
}

// artifacts lists what a release needs on its class path, with the repairs
// that let old releases run on a current Java.
func artifacts(v version) []artifact {
	binding := []string{"org.slf4j:slf4j-log4j12", "org.slf4j:slf4j-reload4j"}
	list := []artifact{
		{"org.apache.kafka", "kafka_" + v.scala(), v.text, binding},
		{"org.slf4j", "slf4j-simple", "1.7.36", nil},
	}
	if !v.zooKeeper() {
		tools := append([]string{"org.apache.kafka:connect-runtime"}, binding...)
		list = append(list, artifact{"org.apache.kafka", "kafka-tools", v.text, tools})
	}
	if v.before(2, 4) {
		// The client of ZooKeeper 3.4 does not connect on Java 14 and newer.
		list = append(list, artifact{"org.apache.zookeeper", "zookeeper", "3.5.9", binding})
	}
	if v.before(1, 0) {
		// Java 11 and newer have no javax.xml.bind of their own.
		list = append(list, artifact{"javax.xml.bind", "jaxb-api", "2.3.1", nil})
	}
	return list
}

// pom renders the Maven project whose runtime dependencies are the class path.
func pom(v version) string {
	var b strings.Builder
	b.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>ottla</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies>
`)
	for _, a := range artifacts(v) {
		fmt.Fprintf(&b, " <dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version>", a.group, a.name, a.version)
		if len(a.without) > 0 {
			b.WriteString("\n  <exclusions>")
			for _, w := range a.without {
				group, name, _ := strings.Cut(w, ":")
				fmt.Fprintf(&b, "<exclusion><groupId>%s</groupId><artifactId>%s</artifactId></exclusion>", group, name)
			}
			b.WriteString("</exclusions>")
		}
		b.WriteString("</dependency>\n")
	}
	b.WriteString("</dependencies></project>\n")
	return b.String()
}
