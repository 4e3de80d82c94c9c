package filter_test

import (
	"context"
	"fmt"

	"github.com/catchment-events/catchment/event"
	"github.com/catchment-events/catchment/messaging/filter"
)

func ExampleWhere() {
	bill := func(_ context.Context, e event.Event) error {
		fmt.Println("bill", e.Subject())
		return nil
	}
	h := filter.Where(bill, filter.All(
		filter.Exact("tenant", "acme"),
		filter.Not(filter.Prefix("subject", "test/")),
	))

	for _, subject := range []string{"A1", "test/A2"} {
		e, _ := event.New("/shop", "order.placed", nil)
		e.SetSubject(subject)
		e.SetExtension("tenant", "acme")
		fmt.Println(h(context.Background(), e))
	}
	// Output:
	// bill A1
	// <nil>
	// <nil>
}

func ExampleParse() {
	f, err := filter.Parse([]byte(`[
		{"prefix": {"type": "order.", "source": "/shop"}},
		{"any": [{"exact": {"tenant": "acme"}}, {"suffix": {"subject": ".eu"}}]}
	]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	e, _ := event.New("/shop/1", "order.placed", nil)
	fmt.Println(f(e))
	e.SetSubject("A1.eu")
	fmt.Println(f(e))

	_, err = filter.Parse([]byte(`{"regex": {"type": "order.*"}}`))
	fmt.Println(err)
	// Output:
	// false
	// true
	// filter: unknown dialect "regex": there are exact, prefix, suffix, all, any, not
}
