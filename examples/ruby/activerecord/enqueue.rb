# A customer and two jobs in one transaction, with ActiveRecord: one job by the function, one by a model over the view.
#
# DATABASE_URL=postgres://… ruby enqueue.rb NAME CARD
require "active_record"

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))

class Customer < ActiveRecord::Base
  self.table_name = "customer"
end

class Job < ActiveRecord::Base
  self.table_name = "posthaste.job"
  self.primary_key = "id" # a view does not tell

  def self.enqueue(name, kwargs)
    enqueue = sanitize_sql(["SELECT posthaste.enqueue(?, ?)", name, kwargs.to_json])
    uncached { connection.select_value(enqueue) } # or the same job again would be a cached answer
  end
end

def sign_up(name, card)
  Customer.transaction do
    customer = Customer.create!(name: name, remind_at: Time.now + 24 * 60 * 60)
    welcome = Job.enqueue("mail.welcome", { customer: customer.id, to: name })
    reminder = Job.create!(
      name: "mail.reminder",
      kwargs: { customer: customer.id },
      queue: "reminders",
      scheduled_at: customer.remind_at
    )
    puts "#{welcome} #{reminder.id}"
    charge(card) # what raises takes the customer and both jobs back
  end
end

def charge(card)
  raise "the card was declined" if card == "declined"
end

sign_up(*ARGV) if $PROGRAM_NAME == __FILE__
