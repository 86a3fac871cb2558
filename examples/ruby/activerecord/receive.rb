# An effect that happens once for each delivery, with ActiveRecord: for a Sidekiq worker, or any other.
#
# DATABASE_URL=postgres://… ruby receive.rb DELIVERY_ID NAME CARD
require "active_record"

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))

class Customer < ActiveRecord::Base
  self.table_name = "customer"
end

def handle(delivery_id, name, card)
  Customer.transaction do
    is_first = Customer.first_time?(delivery_id)
    if is_first
      Customer.create!(name: name, remind_at: Time.now)
      charge(card) # what raises takes the receipt back: the next delivery is the first again
    end
    is_first
  end
end

def Customer.first_time?(delivery_id)
  receive = sanitize_sql(["SELECT posthaste.receive(?)", delivery_id])
  uncached { connection.select_value(receive) } # never an answer of the query cache
end

def charge(card)
  raise "the card was declined" if card == "declined"
end

puts(handle(*ARGV) ? "first" : "again") if $PROGRAM_NAME == __FILE__
