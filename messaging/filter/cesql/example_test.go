package cesql_test

import (
	"fmt"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging/filter/cesql"
)

func ExampleCompile() {
	f, err := cesql.Compile(`type LIKE 'order.%' AND (tenant = 'acme' OR priority > 5)`)
	if err != nil {
		fmt.Println(err)
		return
	}
	e, _ := event.New("/shop", "order.placed", nil)
	fmt.Println(f(e)) // it has no tenant
	e.SetExtension("tenant", "other")
	e.SetExtension("priority", 7)
	fmt.Println(f(e))

	_, err = cesql.Compile(`type = 'order.placed' AND urgent OR tenant = 'acme'`)
	fmt.Println(err)
	// Output:
	// false
	// true
	// cesql: line 1, column 1: AND, OR and XOR next to each other have no order that all agree on: parentheses are required
}
